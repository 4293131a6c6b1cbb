"""Schedules, their factors, and the files of schedule records."""
