"""Executors of plans: lanes on a processor's cores, streams on a GPU, threads over targets."""
