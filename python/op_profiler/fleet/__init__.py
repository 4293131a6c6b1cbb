"""Measures on many machines into one dataset, with Dask's distributed.

A scheduler assigns requests to workers. Workers carry them out with the same supervisor that a command without a
cluster uses, and write to the dataset directly. The client receives reports; measurements are stored in the dataset
even if the client has ended.
"""
