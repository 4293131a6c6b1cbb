"""``op-profiler devices``."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

EXAMPLES = """Examples:

op-profiler devices --local

op-profiler devices --local --json
"""


def devices(
    local: Annotated[bool, typer.Option("--local", help="This machine (the default).")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show this machine and the TVM build that is in use: its version, where it lies, what it was built with."""
    from op_profiler.compiler import build_info, resolve_target
    from op_profiler.measure.device import describe_host

    device = describe_host(resolve_target("llvm"))
    about = {"tvm": build_info(), "device": {**dataclasses.asdict(device), "key": device.key}}
    if as_json:
        print(json.dumps(about, indent=1))
        return
    for title, fields in about.items():
        print(title)
        for name, value in fields.items():
            if isinstance(value, dict):
                value = ", ".join(f"{k}={v}" for k, v in value.items() if k != "flags")
            elif isinstance(value, list):
                value = " ".join(map(str, value))
            print(f"  {name:18} {value if value is not None else 'unknown'}")
