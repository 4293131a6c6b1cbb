"""Search for schedules of Relax's kernels, and their records in MetaSchedule's databases."""
