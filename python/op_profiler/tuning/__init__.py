"""Search for schedules: the choice of candidates, their trials and results."""
