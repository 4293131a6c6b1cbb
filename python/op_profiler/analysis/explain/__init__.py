"""Explanations of operator times: the largest loss, its evidence, and what to try."""
