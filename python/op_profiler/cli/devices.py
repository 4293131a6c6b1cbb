"""``op-profiler devices``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from op_profiler import json_text
from op_profiler.cli import options
from op_profiler.compilers import COMPILERS
from op_profiler.compilers.tvm_build import build_info
from op_profiler.errors import MeasureError, UsageError
from op_profiler.options import DEVICE, options_of
from op_profiler.report.resources import show_properties, show_resources
from op_profiler.resources import local_resources
from op_profiler.targets.machine import Place
from op_profiler.targets.target import kind_of, locks_of, resolve_target, use_build_for

if TYPE_CHECKING:
    from op_profiler.targets.remote.rpc import TrackerMachine

EXAMPLES = """Examples:

op-profiler devices --local

op-profiler devices --local --probe          (measure the peak FLOP/s and bandwidth, and store them)

op-profiler devices --local --json

op-profiler devices --host 127.0.0.1 --port 9190

TVM's RPC runs code for everyone who can connect: keep trackers and servers on networks where everybody may run code on
them.
"""
_PLACE = options_of(Place)


def devices(
    local: Annotated[bool, typer.Option("--local", help="Show this machine (the default).")] = False,
    host: Annotated[str | None, typer.Option(help=_PLACE["host"].option.help, rich_help_panel=DEVICE)] = None,
    port: Annotated[int | None, typer.Option(help=_PLACE["port"].option.help, rich_help_panel=DEVICE)] = None,
    target: Annotated[str, typer.Option(help="Target of the machines behind RPC.")] = "pynq",
    device_key: Annotated[
        str | None,
        typer.Option(
            help="Show only the machines that the tracker lists under this key. For a server: its key. Default: the "
            "target's name."
        ),
    ] = None,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe", help="Measure the peaks of this processor again. Takes seconds and needs an idle machine."
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show this machine and the TVM build in use, or the machines of a tracker with their properties."""
    kind = kind_of(target)
    place = Place.of_options(host, port, device_key)
    if place is not None and local:
        raise UsageError("--local is this machine; leave it out, or --host and --port")
    if place is None:
        _local(as_json, probe)
        return
    if probe:
        raise UsageError("--probe is for this machine; leave out --host and --port")
    kind.check(target, remote=True, dry_run=False)
    kind.check_build()
    _remote(place.with_key(kind.name), target, device_key, as_json)


def _local(as_json: bool, probe: bool) -> None:
    from op_profiler.targets.llvm.host import Host

    machine = Host(resolve_target("llvm"))
    if probe:
        from op_profiler.measure.turns import measuring

        with measuring(locks_of(["llvm"])):
            machine.probe()
    device = machine.device
    packages = kind_of("llvm").tvm_packages
    compilers = {name: COMPILERS.get(name).tvm_identity(packages) for name in COMPILERS}
    about = {"tvm": build_info(), "compilers": compilers, "device": {**dataclasses.asdict(device), "key": device.key}}
    states = [resource.state() for resource in local_resources()]
    if as_json:
        print(json_text.dumps(about | {"resources": states}, indent=1))
        return
    for title, fields in about.items():
        show_properties(title, fields)
    show_resources(states)


def _remote(place: Place, target: str, only: str | None, as_json: bool) -> None:
    """Print the machines of a tracker or server; free machines with the target's key also show their properties."""
    from op_profiler.targets.remote.rpc import TrackerMachine, is_tracker, list_machines

    use_build_for(target)
    if is_tracker(place.host, place.port):
        listed = [m for m in list_machines(place.host, place.port) if only is None or m.key == only]
    else:
        listed = [TrackerMachine(place.key, f"{place.host}:{place.port}", True)]
    about = [dataclasses.asdict(m) | _board_properties(m, place, target) for m in listed]
    if as_json:
        print(json_text.dumps(about, indent=1))
        return
    if not about:
        print(f"the tracker at {place.host}:{place.port} has no machine{f' with key {only!r}' if only else ''}")
    for fields in about:
        title = f"{fields['key']} at {fields['address']}, {'free' if fields['free'] else 'in use'}"
        show_properties(
            title, {name: value for name, value in fields.items() if name not in ("key", "address", "free")}
        )


def _board_properties(machine: TrackerMachine, place: Place, target: str) -> dict[str, Any]:
    """Return the properties of a free machine with the requested key, or its error if it does not answer.

    The result is empty for a machine with another key, and for a machine in use.
    """
    from op_profiler.targets.remote.board import Board

    if machine.key != place.key or not machine.free:
        return {}
    try:
        board = Board(target, resolve_target(target), place, machine.address)
    except MeasureError as error:
        return {"error": str(error)}
    fields = dataclasses.asdict(board.device) | {"device_key": board.device.key}
    board.close()
    return fields
