"""Imports that the fork server of the workers makes once."""

import os

# After a matrix product, numpy's threads would spin for a while, on cores where candidates are timed.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

from op_profiler.compilers.tvm_build import load_tvm  # noqa: E402

load_tvm()

import op_profiler.tuning.trials.worker  # noqa: E402, F401
from op_profiler.compilers.compiler import compiler_in_use  # noqa: E402

compiler_in_use().prepare_search()
