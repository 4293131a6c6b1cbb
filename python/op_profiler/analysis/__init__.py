"""Factors that determine the latency of operators: correlations, and turnaround points beyond which more does not
help."""
