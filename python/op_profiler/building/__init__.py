"""From a request to a built model."""
