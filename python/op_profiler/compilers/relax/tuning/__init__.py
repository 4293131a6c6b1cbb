"""Search for schedules of Relax's kernels, and what MetaSchedule's databases say of them."""
