"""From a request to a filled dataset: one worker process a model, watched by a supervisor."""
