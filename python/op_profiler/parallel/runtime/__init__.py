"""What runs a plan: lanes on a processor's cores, streams on a GPU, threads over targets."""
