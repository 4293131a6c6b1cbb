"""Studies of a model's operators: tuning, comparison of schedules, and times of the vendor's kernels."""
