"""Builds and times the candidates of a search, in processes that may die."""
