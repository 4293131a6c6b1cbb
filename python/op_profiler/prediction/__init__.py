"""From what was measured to what was not."""
