"""Boards with ARM processors. Their code cannot run here; they are measured through `op_profiler.targets.remote`."""
