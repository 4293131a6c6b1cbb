"""Measures on a machine: rounds, samples, statistics, background load and the state of the machine."""
