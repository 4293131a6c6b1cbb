"""Kinds of targets: this host's processor, its GPU, or another machine behind TVM's RPC.

The contracts are here; each kind has a folder.
"""
