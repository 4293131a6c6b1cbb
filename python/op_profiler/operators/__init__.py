"""Operators: their identity, cost, layers and titles, and the kinds that are sampled."""
