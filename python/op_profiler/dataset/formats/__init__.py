"""Tables of others: one file a format, and conversions of units at this border only."""
