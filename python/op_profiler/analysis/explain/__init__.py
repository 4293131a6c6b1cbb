"""Why an operator takes as long as it does, and what would help."""
