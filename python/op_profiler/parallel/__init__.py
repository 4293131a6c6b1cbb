"""Operators side by side: plans, the policies that make them, and the runtime that executes them."""
