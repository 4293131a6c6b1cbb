"""Cases of ONNX's operators, derived from the specification's own list of them.

Every operator of the default domain that is in force at one of the opsets 7 to 22, each of its versions once: with what
it needs, with each attribute off its default, with each optional input and output, and of further types.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .case import Case, NoSuchCaseError
from .onnx_parts import BODIES, SEQUENCE, VALUES, body
from .onnx_values import ALSO, ONCE, RANDOM, Each, Values, With
from .tensors import Made, Tensor, Value, flags, whole

OPSETS = range(7, 23)
_KINDS = ("float16", "float64", "int8", "uint8", "int32", "int64", "bool")
_NAMES = {"float": "float32", "double": "float64", "string": "object"}
_OUTPUTS = {"If": 1, "Loop": 2, "Scan": 2, "SequenceMap": 1, "Split": 2}
_READ_BY = {
    **dict.fromkeys(
        ("SequenceConstruct", "SequenceErase", "SequenceInsert", "SequenceMap", "SplitToSequence"), "ConcatFromSequence"
    ),
    "SequenceEmpty": "SequenceLength",
    "Optional": "OptionalGetElement",
}
"""Operators that make no tensor, and one that makes a tensor of that."""
_FLOATS_ALONE = ("Erf", "GridSample", "Mod")
"""Operators of which onnxruntime computes no integers, or where another attribute goes with them."""
_QUANTIZED = ("QLinearConv", "QLinearMatMul", "QuantizeLinear", "DynamicQuantizeLinear")


def cases() -> Iterator[Case]:
    """All of them, by the name of the operator."""
    for versions in schemas().values():
        for schema in versions:
            yield from of_schema(schema, newest=schema is versions[-1])


def schemas() -> dict[str, list[Any]]:
    """The versions of each operator that are in force at one of `OPSETS`."""
    from onnx import defs

    found: dict[str, dict[int, Any]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            found.setdefault(schema.name, {})[schema.since_version] = schema
    kept: dict[str, list[Any]] = {}
    for name, versions in sorted(found.items()):
        in_force = [max((v for v in versions if v <= opset), default=None) for opset in OPSETS]
        chosen = [versions[v] for v in dict.fromkeys(in_force) if v is not None and not versions[v].deprecated]
        if chosen:
            kept[name] = chosen
    return kept


def of_schema(schema: Any, *, newest: bool) -> Iterator[Case]:
    """Cases of one version of an operator; of further types only for the newest one."""
    base = _Call.base(schema)
    yield base.case("base")
    for name, value in _off_default(schema):
        yield base.given({name: value}).case(f"{name}={_told(value)}")
    for label, changes in base.values.get(ALSO, {}).items():
        yield base.given(changes).case(label)
    for output in schema.outputs:
        if output.option.name == "Optional" and schema.name != "BatchNormalization":  # of training alone
            yield dataclasses.replace(base, outputs=(*base.outputs, output.name)).case(f"output {output.name}")
    for type_name, kind in _kinds(schema) if newest else ():
        yield base.of_kind(type_name, kind).case(f"{type_name}={kind}")


def without_values() -> list[str]:
    """Attributes and inputs that no case gives: an entry of the tables is missing."""
    return [
        f"{schema.name} {name}"
        for versions in schemas().values()
        for schema in versions
        for name, value in _off_default(schema)
        if value is None
    ]


def _off_default(schema: Any) -> Iterator[tuple[str, Any]]:
    """Values of attributes and optional inputs that are not those of the base case."""
    values = _values(schema)
    base = _in_base(schema, values)
    for attribute in schema.attributes.values():
        found = values[attribute.name] if attribute.name in values else _other_than_default(attribute)
        found = found if isinstance(found, Each) else Each(found)
        for value in found[1:] if attribute.name in base else found:
            yield attribute.name, value
    for formal in schema.inputs:
        if formal.name not in base:
            given = values.get(formal.name)
            for value in given if isinstance(given, Each) else (given,):
                yield formal.name, value


def _other_than_default(attribute: Any) -> Any:
    """A number that is not the default; None for other attributes."""
    from onnx import helper

    if not attribute.default_value.type:
        return None
    default = helper.get_attribute_value(attribute.default_value)
    if isinstance(default, int):
        return int(not default)
    return round(default * 0.6 + 0.2, 3) if isinstance(default, float) else None


def _values(schema: Any) -> Values:
    return {**VALUES.get(schema.name, {}), **VALUES.get(f"{schema.name}@{schema.since_version}", {})}


def _in_base(schema: Any, values: Values) -> set[str]:
    needed = {formal.name for formal in schema.inputs if formal.option.name != "Optional"}
    return needed | {a.name for a in schema.attributes.values() if a.required} | set(values.get(ONCE, ()))


def _kinds_of(schema: Any, type_name: str) -> set[str]:
    allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == type_name), [type_name])
    inner = {one.removeprefix("tensor(").removesuffix(")") for one in allowed if one.startswith("tensor(")}
    return {_NAMES.get(one, one) for one in inner}


def _kinds(schema: Any) -> Iterator[tuple[str, str]]:
    """Further types: of the first input all, of others one."""
    values = _values(schema)
    if schema.name in ("Loop", "Scan", "SequenceMap"):  # whose bodies have a type
        return
    for place, type_name in enumerate(dict.fromkeys(formal.type_str for formal in schema.inputs)):
        formal = next(one for one in schema.inputs if one.type_str == type_name)
        own = _usual(schema, formal, values)
        own = own[0] if isinstance(own, tuple) and own else own
        if isinstance(own, Tensor | Value):
            others = [kind for kind in _KINDS if kind in _kinds_of(schema, type_name) and kind != own.kind]
            if schema.name in _FLOATS_ALONE:
                others = [kind for kind in others if kind.startswith("float") == own.kind.startswith("float")]
            yield from ((type_name, kind) for kind in (others if place == 0 else others[-1:]))


def _usual(schema: Any, formal: Any, values: Values) -> Any:
    """What an input is given in the base case."""
    given = values.get(formal.name)
    given = given[0] if isinstance(given, Each) else given
    if given is not None:
        return given.value if isinstance(given, With) else given
    shape = (2, 3, 4) if formal is schema.inputs[0] or formal.name == schema.inputs[0].name else (3, 1)
    kinds = _kinds_of(schema, formal.type_str)
    if "float32" in kinds:
        return Tensor(shape)
    kind = next(kind for kind in ("bool", *_KINDS) if kind in kinds)
    return flags(*shape) if kind == "bool" else whole(0, 5, *shape, kind=kind)


def _told(value: Any) -> str:
    if isinstance(value, With):
        beside = [k if isinstance(v, Tensor) else f"{k}={_told(v)}" for k, v in value.beside.items() if k != ONCE]
        return " ".join([_told(value.value), *beside])
    if isinstance(value, Value):
        return str(value.values)
    return "x".join(map(str, value.shape)) if isinstance(value, Tensor) else str(value)


@dataclasses.dataclass(frozen=True)
class _Call:
    """A node of an operator and what it is given, by the names of the specification."""

    schema: Any
    values: Values
    names: tuple[str, ...]
    outputs: tuple[str, ...]

    @classmethod
    def base(cls, schema: Any) -> _Call:
        values = _values(schema)
        usual = {formal.name: _usual(schema, formal, values) for formal in schema.inputs if formal.name not in values}
        usual |= {name: value[0] for name, value in values.items() if isinstance(value, Each) and value}
        made = [one.name for one in schema.outputs if one.option.name != "Optional"] or [schema.outputs[0].name]
        if schema.outputs[-1].option.name == "Variadic":
            made = [f"made_{place}" for place in range(_OUTPUTS[schema.name])]
        plain = {n: v.value if isinstance(v, With) else v for n, v in {**values, **usual}.items()}
        return cls(schema, plain, tuple(sorted(_in_base(schema, values))), tuple(made))

    def given(self, changes: Mapping[str, Any]) -> _Call:
        """With other values, which are all given; what is None is left out."""
        beside: dict[str, Any] = {}
        for name, value in changes.items():
            beside |= {name: value.value, **value.beside} if isinstance(value, With) else {name: value}
        names = {*self.names, *beside.get(ONCE, ()), *beside} - {
            name for name, value in beside.items() if value is None
        }
        return dataclasses.replace(self, values={**self.values, **beside}, names=tuple(sorted(names)))

    def of_kind(self, type_name: str, kind: str) -> _Call:
        """With another type for all that the specification has of one type."""

        def of(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(one.of(kind) for one in value)
            return value.of(kind) if isinstance(value, Tensor | Value) else value

        same = {one.name for one in self.schema.inputs if one.type_str == type_name}
        return dataclasses.replace(self, values={n: of(v) if n in same else v for n, v in self.values.items()})

    def _parts(self) -> int:
        """How many outputs a Split has."""
        return int(self.values["num_outputs"]) if "num_outputs" in self.names else _OUTPUTS["Split"]

    def case(self, what: str) -> Case:
        operator, version = self.schema.name, self.schema.since_version
        name = f"{operator}-{version}: {what}"
        made = functools.cache(lambda: self.model(np.random.default_rng(zlib.crc32(name.encode()))))
        return Case(
            framework="onnx",
            operator=operator,
            what=f"{version} {what}",
            load=lambda: (_load(made()[0]), made()[1]),
            expected=lambda: expected(*made()),
            compare_values=operator not in RANDOM and not (operator == "TopK" and "sorted" in self.names),
            rounding=1 if operator in _QUANTIZED else 0,
        )

    def model(self, rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
        """The model and its inputs."""
        from onnx import helper, numpy_helper, shape_inference

        arrays: dict[str, Any] = {}
        constants: dict[str, Any] = {}
        nodes: list[Any] = []

        def taken(name: str, value: Any) -> str:
            if isinstance(value, Made):
                parts = [taken(f"{name}_{place}", one) for place, one in enumerate(value.inputs)]
                nodes.append(helper.make_node(value.op_type, parts, [name]))
            else:
                (constants if value.constant else arrays)[name] = value.array(rng)
            return name

        inputs: list[str] = []
        for formal in self.schema.inputs:
            value = self.values.get(formal.name) if formal.name in self.names else None
            if value is SEQUENCE and not any(kind.startswith("seq(") for kind in formal.types):
                raise NoSuchCaseError(f"{self.schema.name} of version {self.schema.since_version} takes no sequence")
            if formal.option.name == "Variadic":
                several = value if isinstance(value, tuple) else (value,)
                inputs += [taken(f"{formal.name}_{n}", one) for n, one in enumerate(several)]
            else:
                inputs.append("" if value is None else taken(formal.name, value))
        while inputs and not inputs[-1]:
            inputs.pop()
        attributes = [
            _attribute(one, self.values[one.name], rng)
            for one in self.schema.attributes.values()
            if one.name in self.names and self.values.get(one.name) is not None
        ]
        if self.schema.name == "If":
            arrays["outer"] = rng.standard_normal((2, 3)).astype("float32")
        names = [one.name for one in self.schema.outputs if one.option.name != "Variadic"]
        outputs = [name if name in self.outputs else "" for name in names] or list(self.outputs)
        if self.schema.name == "Split":
            outputs = [f"part_{place}" for place in range(self._parts())]
        while not outputs[-1]:
            outputs.pop()
        outputs = [name and f"out_{name}" for name in outputs]
        node = helper.make_node(self.schema.name, inputs, outputs, name="the_node")
        node.attribute.extend(attributes)
        nodes.append(node)
        reader = _READ_BY.get(self.schema.name) or (
            "ConcatFromSequence" if self.schema.name == "Identity" and self.values.get("input") is SEQUENCE else None
        )
        if "sparse_value" in self.names:
            reader = "Identity"  # a dense one
        if reader:
            more = {"axis": 0} if reader == "ConcatFromSequence" else {}
            nodes.append(helper.make_node(reader, outputs[:1], ["read"], **more))
            outputs = ["read"]
        opset = max(self.schema.since_version, OPSETS[0])
        infos = [_info(name, value) for name, value in arrays.items()]
        empty = [helper.make_empty_tensor_value_info(name) for name in outputs if name]
        tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
        made = helper.make_model(
            helper.make_graph(nodes, "net", infos, empty, tensors),
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=8 if opset < 18 else 10,
        )
        known = {one.name: one for one in shape_inference.infer_shapes(made).graph.output}
        for output in made.graph.output:
            output.CopyFrom(known.get(output.name, output))
        return made, arrays


def _info(name: str, value: Any) -> Any:
    from onnx import TensorProto, helper

    kind = TensorProto.STRING if value.dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, kind, value.shape)


def _attribute(formal: Any, value: Any, rng: np.random.Generator) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    kind = formal.type.name
    if kind == "GRAPH":
        assert value in BODIES
        value = body(value)
    elif kind == "TENSOR":
        value = numpy_helper.from_array(value.array(rng), formal.name)
    elif kind == "SPARSE_TENSOR":
        places = numpy_helper.from_array(np.array([1, 3]), "places")
        value = helper.make_sparse_tensor(numpy_helper.from_array(value.array(rng), "values"), places, [2, 2])
    elif isinstance(value, Tensor | Value):
        value = value.array(rng).tolist()
    elif kind == "TYPE_PROTO":
        value = helper.make_tensor_type_proto(TensorProto.FLOAT, (2, 3))
    if kind == "FLOATS":
        value = [float(one) for one in value]
    return helper.make_attribute(formal.name, value)


def _load(model: Any) -> Any:
    import onnx

    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        onnx.save(model, path)
        return FRONTENDS.get("file").load(ModelRequest(source="file", name=str(path)))


def expected(model: Any, arrays: Mapping[str, Any]) -> list[Any]:
    """What onnxruntime computes, and onnx's own evaluator where onnxruntime does not know the operator or the type.

    Raises:
        Exception: both take the model for wrong.
    """
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    earlier = type(model)()
    earlier.CopyFrom(model)
    if model.opset_import[0].version == 22:  # which adds bfloat16 alone, and not all of it is in onnxruntime
        earlier.opset_import[0].version = 21
    first: Exception | None = None
    for one in (model, earlier):
        try:
            session = onnxruntime.InferenceSession(one.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return list(session.run(None, dict(arrays)))
        except Exception as error:
            first = first or error
    try:
        return list(ReferenceEvaluator(model).run(None, dict(arrays)))
    except Exception:
        raise first or AssertionError from None
