"""Two runs beside each other: what became faster or slower, how sure that is, and what only one of them has."""
