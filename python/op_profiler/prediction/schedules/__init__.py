"""Which schedule of an operator is likely to be fast, without a search."""
