"""Builders of models: networks of this package, and those of installed libraries."""
