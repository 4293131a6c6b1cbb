"""What LLVM makes of the options of a target.

LLVM ignores a processor and a feature that it does not know, and the code is then for another processor than the one
that was asked for; on a triple that it does not know, and on a feature without its sign, it ends the process.
"""

from __future__ import annotations

import re
from typing import Any

from op_profiler.errors import UnknownNameError, UsageError

_FAMILIES = {
    r"i[3-9]86": "i386",
    r"x86_64h?|amd64": "x86_64",
    r"arm64\w*": "aarch64",
    r"armv\d\w*": "arm",
    r"thumbv\d\w*": "thumb",
}
"""Spellings of an architecture in triples, and LLVM's name of its code generator."""


def check(target: Any) -> None:
    """Refuse options that LLVM would ignore or die of.

    Args:
        target: `tvm.target.Target` of kind llvm.

    Raises:
        UsageError: the triple, the processor, a feature or another option is none that LLVM knows.
    """
    import tvm
    from tvm.target import codegen

    if tvm.get_global_func("target.llvm_get_cpu_archlist", allow_missing=True) is None:
        return  # a TVM that cannot tell
    _check_triple(str(target.attrs.get("mtriple", "")), [str(name) for name in codegen.llvm_get_targets()])
    features = [str(feature) for feature in target.attrs.get("mattr", [])]
    for feature in features:
        if not re.fullmatch(r"[+-][\w.\-]+", feature):
            raise UsageError(f"-mattr={feature}: a feature has + or - in front, such as -mattr=+avx2,-avx512f")
    try:
        known = [str(name) for name in codegen.llvm_get_cpu_archlist(target)]
        processor = str(target.attrs.get("mcpu", "generic"))
        if processor not in known:
            hint = "llvm without options is this processor." if processor == "native" else ""
            raise UnknownNameError("processor in -mcpu", processor, known, hint)
        fields = {key: target.attrs[key] for key in target.attrs.keys()}
        switched_on = tvm.target.Target({**fields, "kind": "llvm", "mattr": [f"+{one[1:]}" for one in features]})
        found = {str(name) for name in codegen.llvm_get_cpu_features(switched_on)}
    except tvm.TVMError as error:
        reason = str(error).strip().splitlines()[-1].removeprefix("TVMError: ")
        raise UsageError(f"LLVM does not take the target {str(target)!r}: {reason}") from error
    unknown = [feature for feature in features if feature[1:] not in found]
    if unknown:
        raise UsageError(f"-mattr={','.join(unknown)}: LLVM knows no such feature of {processor}")


def _check_triple(triple: str, known: list[str]) -> None:
    architecture = triple.partition("-")[0]
    family = next((name for spelling, name in _FAMILIES.items() if re.fullmatch(spelling, architecture)), architecture)
    if triple and family not in known:
        raise UnknownNameError("architecture in -mtriple", architecture, known)
