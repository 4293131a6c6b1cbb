"""Operators side by side.

- `planning`: kernels with their order and costs go in, a plan comes out. It knows nothing of TVM and of who runs plans.
- `runtime`: runs a plan on a processor's cores or a GPU's streams. It knows nothing of policies.
- `corun`: what a user asks for, from models to a plan that was measured beside running one operator after the other.
"""
