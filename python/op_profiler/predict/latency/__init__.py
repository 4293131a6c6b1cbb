"""The latency of operators and networks on a device, learned from a dataset."""
