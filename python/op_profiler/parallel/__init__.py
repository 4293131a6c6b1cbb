"""Operators side by side: plans, the executors that run them, and the measurements on which plans are based.

- `planning`: makes a plan from kernels, their order and their costs. It depends on neither TVM nor an executor.
- `runtime`: runs a plan on a processor's cores or a GPU's streams. It depends on no policy.
- `corun`: from the user's request to a plan that was measured next to sequential execution.
"""
