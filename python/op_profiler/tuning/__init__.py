"""The search for good schedules: which points of a space are tried, and what is made of the results."""
