"""Schedules that are likely to be fast, without a search."""
