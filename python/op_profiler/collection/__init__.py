"""Collections, from a request to stored measurements: one worker process per model, watched by a supervisor."""
