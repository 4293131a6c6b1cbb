"""From a request to a built model: loading, checking the outputs, building, and the cache of builds."""
