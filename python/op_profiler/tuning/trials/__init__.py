"""Trials: candidates built and timed in processes that may crash."""
