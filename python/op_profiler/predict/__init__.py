"""Answers for what was never measured, from what was."""
