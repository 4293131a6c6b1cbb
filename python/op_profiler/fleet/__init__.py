"""Many machines that measure into one dataset: Dask's distributed brings the work to them.

A scheduler hands out requests, workers carry them out with the same supervisor that a plain command uses, and write
straight into the dataset. What a client gets back is the report; what was measured is in the dataset even where the
client is gone.
"""
