"""From a file or a module of another framework to Relay, by TVM's importers."""
