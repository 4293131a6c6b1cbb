"""Factors that decide the latency of operators: correlations, and turnaround points, beyond which more does not pay."""
