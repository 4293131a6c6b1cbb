"""What decides the latency of operators: correlations with factors, and from where on more of a factor stops paying."""
