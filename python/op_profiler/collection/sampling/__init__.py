"""Sampled operators, which belong to no given model: grids, random draws, and operators taken from models."""
