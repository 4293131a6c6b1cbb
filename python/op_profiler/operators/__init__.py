"""Operators: what they are, what they cost, their layers and titles, and the kinds that are sampled."""
