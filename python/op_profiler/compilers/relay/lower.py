"""From a model to compiled kernels, in one `relay.build`, during which the fused functions are recorded."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from op_profiler.compilers import executor_graph
from op_profiler.compilers.compiled_model import CompiledModel, Launch, Occurrence
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.loop_reader import parallel_loops_of
from op_profiler.compilers.relay import long_rows
from op_profiler.compilers.relay.compiled_files import Library
from op_profiler.compilers.relay.constant_resizes import with_computed_resizes
from op_profiler.compilers.relay.extract import extract
from op_profiler.compilers.relay.launch import launches_of, noting
from op_profiler.compilers.relay.layers import Layers
from op_profiler.compilers.relay.pass_config import pass_config
from op_profiler.compilers.relay.rewrites import rewritten
from op_profiler.compilers.relay_rewriting import calls_in, functions_of
from op_profiler.compilers.tvm_build import load_tvm, replaced
from op_profiler.compilers.tvm_errors import is_internal, last_line
from op_profiler.compilers.tvm_types import DeviceArray, IRModule, Named, Target
from op_profiler.errors import ModelError
from op_profiler.operators import cost

_MOST_CONVOLUTIONS = 300
FLOAT_DECLARED = "#dbg_declare"
"""Part of LLVM's error (from version 20 on) for kernels in which TVM names a floating-point value that occurs twice,
such as a coordinate of a bilinear resize: LLVM accepts debug information for integers and pointers only."""
_SIMPLIFICATION, _ELIMINATION = "SimplifyExpr", "tir.CommonSubexprElim"
NO_ELIMINATION = {"tir.disable_cse_tir": True}
_LOOKS_FOR = {"qnn.Legalize": "qnn.", "FlattenAtrousConv": "space_to_batch_nd"}
"""Passes that change only operations with these name prefixes, which no earlier pass creates. They are skipped if there
are none, because TVM infers the types of the module before and after each pass."""
_WHY = {
    _SIMPLIFICATION: f"takes a quarter of an hour and more for models of over {_MOST_CONVOLUTIONS} convolutions",
    _ELIMINATION: "names floating-point values, and this LLVM refuses a kernel for that",
}


_MOST_CHARACTERS = 40_000  # a Winograd's unrolled transforms have more, and nobody reads them


def optimize(model: ImportedModel, target: Target, *, layers: bool = True) -> list[Occurrence]:
    """Lower and fuse a model without generating code; return the operators that a build would compile.

    The weights of heavy operators stay variables, so that nothing is computed from them, because folding their layouts
    takes most of a build. The other constants are folded as in a build, because fusion depends on them.

    Args:
        layers: whether operators are attributed to the layers of the model.
    """
    module = rewritten(model.mod)
    weights = _weights_of_heavy_ops(module, model.params)
    folded = {name: value for name, value in model.params.items() if name not in weights}
    with _compile_errors(model):
        try:
            return fuse(module, target, folded, weights, layers=layers)
        except load_tvm().TVMError as error:
            if FLOAT_DECLARED not in str(error):
                raise
            computed = with_computed_resizes(module, folded, NO_ELIMINATION)
            return fuse(computed, target, folded, weights, layers=layers)


def fuse(
    module: IRModule, target: Target, params: dict[str, DeviceArray], weights: Collection[str], *, layers: bool = True
) -> list[Occurrence]:
    """Return the operators that the compiler creates from a module.

    Args:
        params: weights by the variable of ``main`` to which they are bound.
        weights: names of further variables that stand for weights.
        layers: whether operators are attributed to the layers of the model.
    """
    tvm = load_tvm()
    carried = Layers()
    marked = carried.marked(module) if layers else module
    names = _names_of_ops(module)
    instruments = [_shortcuts(names, weights), carried.carrier()]
    left_out = [*_left_out(names), *_without_work(names)]
    settings = {"config": pass_config(), "disabled_pass": left_out, "instruments": instruments}
    with quiet(), tvm.transform.PassContext(opt_level=3, **settings):
        optimized, _ = tvm.relay.optimize(marked, target=target, params=params)
    return extract(optimized, carried, weights)


def _shortcuts(names: Counter[str], weights: Collection[str] = ()) -> Any:
    from op_profiler.compilers.relay import shortcuts  # brings numpy, which a look-up does without

    return shortcuts.shortcuts(weights, divides=any(names[name] for name in shortcuts.DIVISIONS))


def _weights_of_heavy_ops(module: IRModule, params: Collection[str]) -> set[str]:
    """Return the parameters that reach a heavy op as its second argument, directly or through ops of one argument."""
    relay = load_tvm().relay
    found: set[str] = set()
    for call in calls_in(module["main"]):
        if getattr(call.op, "name", "") not in cost.HEAVY or len(call.args) < 2:
            continue
        weight = call.args[1]
        while isinstance(weight, relay.Call) and len(weight.args) == 1:
            weight = weight.args[0]
        if isinstance(weight, relay.Var) and weight.name_hint in params:
            found.add(weight.name_hint)
    return found


def compile_model(model: ImportedModel, target: Target, executor: str = "graph") -> CompiledModel:
    """Build a model once; its kernels and its operators come from the same compilation.

    Raises:
        ModelError: the compiler rejects the model; the message names the operator if TVM reports it.
    """
    tvm = load_tvm()
    capture = _label_capture()
    launches: dict[str, list[Launch]] = {}
    loops: dict[str, list[int]] = {}
    code: dict[str, str] = {}
    on_processor = "cpu" in target.keys
    note = noting(loops, _parallel_loops) if on_processor else noting(launches, launches_of)
    started = time.perf_counter()
    config = pass_config((0, noting(code, _script)), (3, note))
    build = tvm.relay.vm.compile if executor == "vm" else tvm.relay.build

    layers = Layers()
    module = layers.marked(rewritten(model.mod))
    names = _names_of_ops(module)
    left_out, idle = _left_out(names), _without_work(names)
    instruments = [_shortcuts(names), layers.carrier(), capture]

    def built(module: IRModule, **more: Any) -> Any:
        settings = {"config": config | more, "disabled_pass": [*left_out, *idle]}
        with tvm.transform.PassContext(opt_level=3, instruments=instruments, **settings), _one_copy_of_weights():
            return build(module, target=target, params=model.params)

    with quiet(), _compile_errors(model):
        try:
            library = built(module)
        except tvm.TVMError as error:
            if FLOAT_DECLARED not in str(error):
                raise
            capture.modules.clear()
            library = built(with_computed_resizes(module, model.params, NO_ELIMINATION), **NO_ELIMINATION)
            left_out = [*left_out, _ELIMINATION]
    seconds = time.perf_counter() - started
    extracted = [extract(labelled, layers) for labelled in capture.modules]
    capture.modules.clear()  # TVM keeps an instrument until the process ends, and would keep the weights with it
    by_label = {o.label: o for occurrences in reversed(extracted) for o in reversed(occurrences)}
    graph = json.loads(library.get_graph_json()) if executor == "graph" else None
    calls = () if graph is None else tuple(executor_graph.kernel_calls(graph))
    labels = {call.label: call.name for call in calls}
    without = [f"compiled without TVM's pass {name}, which {_WHY[name]}" for name in left_out]
    return CompiledModel(
        library,
        tuple(extracted[0]),
        by_label,
        seconds,
        executor,
        calls=calls,
        tensors=() if graph is None else executor_graph.planned_tensors(graph),
        outputs=() if graph is None else executor_graph.outputs(graph),
        launches={label: launches[name] for label, name in labels.items() if name in launches},
        loops={label: loops[name] for label, name in labels.items() if name in loops},
        code={label: code[name] for label, name in labels.items() if name in code},
        left_out=tuple(left_out),
        notes=(*without, *long_rows.notes((o.operator for o in extracted[0]), target)),
    )


def _one_copy_of_weights() -> contextlib.AbstractContextManager[None]:
    """Make `relay.build` return a `Library`, because TVM's own factory copies the weights, which then exist twice."""

    def library(
        _module: Any, _target: Any, _executor: Any, graph: str, kernels: Any, _name: str, params: Any, *_: Any
    ) -> Library:
        return Library(graph, kernels, dict(params))

    return replaced(load_tvm().relay.build_module._executor_factory, "GraphExecutorFactoryModule", library)


def _names_of_ops(module: IRModule) -> Counter[str]:
    """Return how often each operation is called in the functions of a module."""
    calls = (call for function in functions_of(module) for call in calls_in(function))
    return Counter(str(getattr(call.op, "name", "")) for call in calls)


def _left_out(names: Counter[str]) -> list[str]:
    """Return the names of useful passes of the compiler that are left out for a module with these operations.

    `SimplifyExpr` infers all types again wherever one of its patterns fits, and TVM infers the type of a
    convolution slowly: with hundreds of them (nasnet) the pass alone takes over a quarter of an hour.
    """
    convolutions = sum(count for name, count in names.items() if "conv" in name)
    return [_SIMPLIFICATION] if convolutions > _MOST_CONVOLUTIONS else []


def _without_work(names: Counter[str]) -> list[str]:
    """Return the names of the compiler's passes that change nothing in a module with these operations."""
    return [one for one, start in _LOOKS_FOR.items() if not any(name.startswith(start) for name in names)]


def single_operator_model(occurrence: Occurrence) -> ImportedModel:
    """Return a model with a single operator, for operators whose model cannot be built.

    The function stays marked as primitive, so that the compiler neither splits it nor changes its layouts.
    """
    tvm = load_tvm()
    relay = tvm.relay
    function = occurrence.function
    variables = [relay.Var(f"x{i}", p.checked_type) for i, p in enumerate(function.params)]
    module = tvm.IRModule.from_expr(relay.Function(variables, relay.Call(function, variables)))
    module = relay.transform.InferType()(module)
    inputs = tuple(
        InputSpec(v.name_hint, tuple(int(d) for d in v.checked_type.shape), str(v.checked_type.dtype))
        for v in module["main"].params
    )
    return ImportedModel(occurrence.operator.name, "operator", module, {}, inputs)


def _label_capture() -> Any:
    tvm = load_tvm()

    @tvm.ir.instrument.pass_instrument
    class LabelCapture:
        """Records the module as `LabelOps` leaves it: fused, laid out, each function with the hash that graphs carry.

        The graph executor's pipeline labels once; the virtual machine's labels again for the kernels that it adds to
        compute shapes and sizes.
        """

        def __init__(self) -> None:
            self.modules: list[IRModule] = []

        def run_after_pass(self, module: IRModule, info: Named) -> None:
            if info.name == "LabelOps":
                self.modules.append(module)

    return LabelCapture()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress the compiler's advice about tuning inside the block."""
    loggers = [logging.getLogger(n) for n in ("te_compiler", "autotvm", "strategy", "topi", "compile_engine")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def _compile_errors(model: ImportedModel) -> Iterator[None]:
    try:
        yield
    except (
        RuntimeError,  # TVM's own, and of what TVM calls back to compile for a GPU
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
        AssertionError,
    ) as error:
        text = last_line(error)
        if is_internal(text):
            logging.getLogger(__name__).info("TVM's build of %s: %s", model.name, text)
            text = (
                "TVM has no kernel for one of its operators with these types and sizes; try it in float32, or in parts"
            )
        raise ModelError(f"{model.name} does not compile: {text}") from error


def _parallel_loops(function: Any) -> list[int]:
    return parallel_loops_of(function.body, load_tvm().tir)


def _script(function: Any) -> str:
    """Return the TVMScript of a function; empty if it is too long.

    In phase 0 of lowering, loops have the order of the schedule, none is unrolled yet, and tensors have all their axes.
    """
    text = str(function.script(show_meta=False))
    return text if len(text) <= _MOST_CHARACTERS else ""
