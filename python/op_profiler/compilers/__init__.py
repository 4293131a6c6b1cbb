"""What the rest of the package needs of a compiler: one folder a compiler."""
