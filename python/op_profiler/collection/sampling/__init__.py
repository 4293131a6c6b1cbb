"""Samples operators outside of models: from grids, by random draws, or taken from models."""
