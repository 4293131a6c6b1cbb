"""Studies of a model's operators: tuning, comparison of schedules, and the vendor's kernels."""
