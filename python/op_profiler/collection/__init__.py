"""Collects measurements: a supervisor starts one worker process per model, which stores its results in the dataset."""
