"""Many machines that measure into one dataset, with Dask's distributed.

A scheduler hands out requests. Workers carry them out with the same supervisor that a plain command uses, and write
to the dataset directly. The client receives reports; measurements are in the dataset even if the client is gone.
"""
