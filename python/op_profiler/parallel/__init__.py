"""Runs operators side by side: plans, the executors that run plans, and the measurements on which plans are based.

- `planning`: makes a plan from kernels, their order and their costs. It depends on neither TVM nor an executor.
- `runtime`: runs a plan on a processor's cores or a GPU's streams. It depends on no policy.
- `corun`: carries out a user's request: makes a plan and measures it next to sequential execution.
"""
