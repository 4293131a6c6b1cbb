"""Rejects options of a target that LLVM would ignore or crash on.

LLVM ignores an unknown processor or feature, and then compiles for another processor than the requested one. An unknown
triple, or a feature without its sign, ends the process.
"""

from __future__ import annotations

import re

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Target
from op_profiler.errors import UnknownNameError, UsageError
from op_profiler.targets.target import tvm_target

_FAMILIES = {
    r"i[3-9]86": "i386",
    r"x86_64h?|amd64": "x86_64",
    r"arm64\w*": "aarch64",
    r"armv\d\w*": "arm",
    r"thumbv\d\w*": "thumb",
}
"""Spellings of an architecture in triples, with LLVM's name of the code generator."""

_ARM = ("arm", "thumb", "aarch64")
_ABIS = {
    **dict.fromkeys(("i386", "x86_64"), ()),
    **dict.fromkeys(("arm", "thumb"), ("aapcs", "aapcs-linux", "aapcs16", "apcs-gnu")),
    "aarch64": ("aapcs", "aapcs-soft", "darwinpcs", "ilp32"),
    "riscv32": ("ilp32", "ilp32e", "ilp32f", "ilp32d"),
    "riscv64": ("lp64", "lp64e", "lp64f", "lp64d"),
}
"""Allowed values of ``-mabi`` by code generator; x86 always uses the triple's ABI."""
_OPT_LEVELS = range(4)


def checked(text: str) -> Target:
    """Return the `tvm.target.Target` of a target string of kind llvm.

    Raises:
        UsageError: TVM does not understand the string, or `check` rejects the target.
    """
    target = tvm_target(text)
    check(target)
    return target


def check(target: Target) -> None:
    """Reject options that LLVM would ignore or crash on.

    Args:
        target: `tvm.target.Target` of kind llvm.

    Raises:
        UsageError: LLVM does not know the triple, the processor, a feature or another option.
    """
    tvm = load_tvm()
    codegen = tvm.target.codegen
    if tvm.get_global_func("target.llvm_get_cpu_archlist", allow_missing=True) is None:
        return  # this TVM cannot list processors
    triple = str(target.attrs.get("mtriple", ""))
    _check_triple(triple, [str(name) for name in codegen.llvm_get_targets()])
    _check_others(target, _family(triple or str(codegen.llvm_get_system_triple())))
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
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].removeprefix("TVMError: ")
        raise UsageError(f"LLVM does not take the target {str(target)!r}: {reason}") from error
    unknown = [feature for feature in features if feature[1:] not in found]
    if unknown:
        raise UsageError(f"-mattr={','.join(unknown)}: LLVM has no such feature of {processor}")


def _family(triple: str) -> str:
    architecture = triple.partition("-")[0]
    return next((name for spelling, name in _FAMILIES.items() if re.fullmatch(spelling, architecture)), architecture)


def _check_triple(triple: str, known: list[str]) -> None:
    if triple and _family(triple) not in known:
        raise UnknownNameError("architecture in -mtriple", triple.partition("-")[0], known)


def _check_others(target: Target, family: str) -> None:
    """Reject options that LLVM would accept silently."""
    if str(target.attrs.get("device", "")) == "arm_cpu" and family not in _ARM:
        raise UsageError(
            f"pynq and arm_cpu are boards with an ARM processor, and this compiles for {family}: give options with "
            "-mtriple, such as 'arm_cpu -mtriple=aarch64-linux-gnu -mcpu=cortex-a53'"
        )
    abi, abis = str(target.attrs.get("mabi", "")), _ABIS.get(family)
    if abi and abis is not None and abi not in abis:
        there = f"only {', '.join(abis)}" if abis else "none to choose"
        raise UsageError(f"-mabi={abi}: {family} has {there}")
    level = int(target.attrs.get("opt-level", 3))
    if level not in _OPT_LEVELS:
        raise UsageError(f"-opt-level={level} is out of range; LLVM has {_OPT_LEVELS[0]} to {_OPT_LEVELS[-1]}")
