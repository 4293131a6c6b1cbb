"""Executors of plans: on lanes (threads bound to a processor's cores), and on the streams of a GPU."""
