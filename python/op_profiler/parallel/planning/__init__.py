"""Graphs, costs and games, and the policies that make plans from them."""
