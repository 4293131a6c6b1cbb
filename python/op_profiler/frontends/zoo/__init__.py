"""Models that are made here or by an installed library."""
