"""Boards and other machines behind TVM's RPC."""
