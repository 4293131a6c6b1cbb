"""Operators to measure that no model brought along: grids, random draws, and operators taken from models."""
