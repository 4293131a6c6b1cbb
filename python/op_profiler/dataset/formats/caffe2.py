"""Reads and writes Caffe2's arguments and dtype codes as they appear in operator look-up tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Value = int | float | str | tuple[int, ...]

DTYPES = {1: "float32", 2: "int32", 3: "uint8", 5: "bool", 6: "uint8", 7: "int8"}
"""Dtypes by Caffe2's codes. Code 3 (byte) is read as uint8, and uint8 is written as 6; 4 (text) is not supported."""

CODES = {name: code for code, name in DTYPES.items()}

IGNORED = frozenset({"Y_scale", "Y_zero_point", "ws_nbytes_limit"})
"""Names of arguments that do not affect the time of an operator."""

_NAME = re.compile(r'name:\s*"([^"]*)"')
_VALUE = re.compile(r'^\s*(i|f|s|ints):\s*(?:"([^"]*)"|(\S+))\s*$', re.MULTILINE)


def parse_argument(text: str) -> tuple[str, Value]:
    """Parse an argument in protobuf's text form, e.g. ``name: "kernel"\\ni: 3\\n``, into name and value.

    Raises:
        ValueError: the text has no name or no value.
    """
    name = _NAME.search(text)
    values = _VALUE.findall(text)
    if name is None or not values:
        raise ValueError(f"{text[:60]!r} is no argument of Caffe2")
    kind, word, number = values[0]
    if kind == "ints":
        return name[1], tuple(int(n) for _, _, n in values)
    if kind == "s":
        return name[1], str(word)
    return name[1], int(number) if kind == "i" else float(number)


def format_argument(name: str, value: int | str) -> str:
    """Return an argument in protobuf's text form."""
    return f'name: "{name}"\ns: "{value}"\n' if isinstance(value, str) else f'name: "{name}"\ni: {value}\n'


def arguments(texts: Iterable[str]) -> tuple[dict[str, Value], dict[str, str]]:
    """Parse arguments except `IGNORED` ones, and return two dicts by argument name: the values and the texts.

    Raises:
        ValueError: a text is not an argument.
    """
    parsed = [(*parse_argument(text), text) for text in texts]
    kept = [entry for entry in parsed if entry[0] not in IGNORED]
    return {name: value for name, value, _ in kept}, {name: text for name, _, text in kept}


def pair(values: Mapping[str, Value], name: str, default: int) -> tuple[int, int]:
    """Return height and width of a window's kernel, stride or dilation.

    Args:
        values: arguments of the operator: for a kernel, ``kernel``, or ``kernel_h`` and ``kernel_w``, or ``kernels``.
        name: ``kernel``, ``stride`` or ``dilation``.
        default: result for height or width if the operator has no argument for it.

    Raises:
        ValueError: the values are not integers, or there are more than two.
    """
    both = values.get(f"{name}s")
    if isinstance(both, tuple):
        if len(both) not in (1, 2):
            raise ValueError(f"{name}s with {len(both)} values; two-dimensional windows have 2")
        return both[0], both[-1]
    one = values.get(name, default)
    return _whole(values.get(f"{name}_h", one), name), _whole(values.get(f"{name}_w", one), name)


def pads(values: Mapping[str, Value]) -> tuple[int, int, int, int]:
    """Return the padding at the top, left, bottom and right, from ``pad``, ``pad_t`` and so on, or ``pads``.

    Raises:
        ValueError: the values are not integers, or ``pads`` does not consist of four values.
    """
    four = values.get("pads")
    if isinstance(four, tuple):
        if len(four) != 4:
            raise ValueError(f"pads with {len(four)} values; they are 4")
        return four[0], four[1], four[2], four[3]
    one = values.get("pad", 0)
    top, left, bottom, right = (_whole(values.get(f"pad_{side}", one), "pad") for side in "tlbr")
    return top, left, bottom, right


def write_pair(name: str, values: tuple[int, int], default: int | None = None) -> list[str]:
    """Return the arguments for height and width; an empty list if both have the default."""
    if values == (default, default):
        return []
    if values[0] == values[1]:
        return [format_argument(name, values[0])]
    return [format_argument(f"{name}_h", values[0]), format_argument(f"{name}_w", values[1])]


def write_pads(values: tuple[int, int, int, int]) -> list[str]:
    """Return the arguments for the padding at the top, left, bottom and right."""
    if len(set(values)) == 1:
        return [format_argument("pad", values[0])]
    return [format_argument(f"pad_{side}", value) for side, value in zip("tlbr", values)]


def window_names() -> frozenset[str]:
    """Return the names of all arguments that describe a window: kernel, stride, dilation and padding."""
    pairs = {f"{n}{end}" for n in ("kernel", "stride", "dilation") for end in ("", "_h", "_w", "s")}
    return frozenset(pairs | {"pad", "pads", "pad_t", "pad_l", "pad_b", "pad_r"})


def dtype(code: object) -> str:
    """Return the dtype of one of Caffe2's codes.

    Raises:
        ValueError: the code is not in `DTYPES`.
    """
    if not isinstance(code, int) or code not in DTYPES:
        raise ValueError(f"dtype {code!r} is none of {', '.join(map(str, DTYPES))}")
    return DTYPES[code]


def _whole(value: Value, name: str) -> int:
    if not isinstance(value, int):
        raise ValueError(f"{name} is {value!r}, no whole number")
    return value
