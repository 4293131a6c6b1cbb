"""op_profiler: a compiler-level operator profiler and latency predictor for deep learning, built on TVM."""

__version__ = "0.1.0"
