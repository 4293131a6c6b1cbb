"""Comparisons of two runs: operators that changed, the certainty of each change, and operators of one run only."""
