"""The commands as Python functions: ``from op_profiler import collect, predict, corun``.

Each function accepts those options of its command that decide what is measured, as keyword arguments, and returns the
result that the command would print. A model is a torch module with example inputs, an ``onnx.ModelProto``,
``source:name``, the path of a file, or a name of the source ``local``. Errors that a user can act on are
`op_profiler.errors.OpProfilerError`, as on the command line. Progress is printed only for several models; failures are
printed on stderr.
"""
