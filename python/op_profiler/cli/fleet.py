"""``op-profiler scheduler``, ``worker``, ``fleet`` and ``certificates``: clusters of machines that measure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from op_profiler import json_text
from op_profiler.cli import options
from op_profiler.report.fleet import show_fleet

EXAMPLES = """Examples:

op-profiler scheduler                                             (listens on this machine only, port 8786)

op-profiler worker tcp://127.0.0.1:8786                           (on the same machine; others need tls://)

op-profiler collect --modelsource local --cluster tcp://127.0.0.1:8786 --db postgresql://me@host/times

op-profiler worker tcp://127.0.0.1:8786 --boards pynq@192.168.2.99:9190      (and on boards behind a tracker)

op-profiler worker tcp://127.0.0.1:8786 --targets cuda             (on the GPU, and not on the processor)

op-profiler fleet tcp://127.0.0.1:8786                            (machines, and what runs on them)

op-profiler certificates tls --host rack1 --host rack2            (for a cluster over a network; see the tutorial)

Everyone who can reach a scheduler can run code on every machine of its cluster.
"""

Address = Annotated[str, typer.Argument(help="Address of the scheduler: tcp://HOST:PORT or tls://HOST:PORT.")]


def scheduler(
    host: Annotated[
        str, typer.Option(help="Address to listen on. Addresses other than 127.0.0.1 need certificates.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free port.")] = 8786,
) -> None:
    """Distribute requests to the workers of a cluster, until Ctrl-C."""
    from op_profiler.fleet.nodes import run_scheduler

    run_scheduler(host, port, _say)


def worker(
    address: Address,
    boards: Annotated[
        list[str] | None,
        typer.Option(help="KIND@HOST:PORT: boards that this machine can reach. Repeat the option for several kinds."),
    ] = None,
    targets: Annotated[
        str | None,
        typer.Option(
            help="Kinds of targets to measure, separated by commas. Default: all that this machine or --boards has."
        ),
    ] = None,
) -> None:
    """Measure on this machine what a cluster requests, one request at a time, until Ctrl-C."""
    from op_profiler.fleet import settings
    from op_profiler.fleet.nodes import run_worker

    if boards:
        os.environ[settings.BOARDS] = ",".join(boards)  # for the processes that this one starts, too
    if targets:
        os.environ[settings.TARGETS] = targets
    run_worker(address, _say)


def fleet(address: Address, as_json: options.Json = False) -> None:
    """Show the machines of a cluster: what they measure, their state, and what runs on them."""
    from op_profiler.fleet.state import state_of

    state = state_of(address)
    if as_json:
        print(json_text.dumps(state, indent=1))
    else:
        show_fleet(address, state)


def certificates(
    folder: Annotated[Path, typer.Argument(help="Folder to create. Copy it to every machine of the cluster.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name or address of a machine. Repeat the option for each. Default: localhost and 127.0.0.1."
        ),
    ] = None,
) -> None:
    """Create the certificates of a cluster; everyone who has them can send requests to the cluster."""
    from op_profiler.fleet import settings
    from op_profiler.fleet.certificates import make

    make(folder, host or ["localhost", "127.0.0.1"])
    print(f"copy {folder} to every machine of the cluster, and there: export {settings.TLS}={folder.absolute()}")


def _say(text: str) -> None:
    print(text, flush=True)
