"""Imports a file or a module of another framework into Relay, with TVM's importers."""
