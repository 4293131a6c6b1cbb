"""Options that several commands have: each is declared once, and is the same for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_MODEL, _MEASURING, _DEVICE, _OUTPUT = "Model", "Measuring", "Device", "Output"

ModelSource = Annotated[
    str,
    typer.Option(help="Source of a plain name: {frontends}.", rich_help_panel=_MODEL),
]
BatchSize = Annotated[int, typer.Option(help="Leading dimension of the inputs.", rich_help_panel=_MODEL)]
InputName = Annotated[
    str, typer.Option(help="Names of the inputs, by commas, where a model needs them.", rich_help_panel=_MODEL)
]
InputShape = Annotated[
    str, typer.Option(help="Shapes of the inputs: 1,3,224,224; a semicolon between inputs.", rich_help_panel=_MODEL)
]
SequenceLength = Annotated[
    int | None, typer.Option(min=1, help="Tokens per sequence of language models.", rich_help_panel=_MODEL)
]

Target = Annotated[
    str,
    typer.Option(
        help="{targets} (llvm is this processor), or a TVM target string that starts with one of these.",
        rich_help_panel=_MEASURING,
    ),
]
Compiler = Annotated[str, typer.Option(help="What makes the kernels: {compilers}.", rich_help_panel=_MODEL)]
Pipeline = Annotated[
    str,
    typer.Option(
        help="The compiler's passes from a model to kernels: default; of relax also stock (TVM's own), or your "
        "MODULE:FUNCTION that gives a pass for a target.",
        rich_help_panel=_MODEL,
    ),
]
Importer = Annotated[
    str,
    typer.Option(
        help="Who reads the model: auto; with --compiler relax also relay or relax (torch.export, ONNX, TFLite). "
        "There auto takes relay, and relax where that refuses.",
        rich_help_panel=_MODEL,
    ),
]
Threads = Annotated[
    str | None,
    typer.Option(
        help="Thread counts to measure at: 1,2,4. Default: powers of two up to the usable cores, and that number; "
        "1,2 on pynq, 1 on other boards.",
        rich_help_panel=_MEASURING,
    ),
]
CacheState = Annotated[
    str,
    typer.Option(
        "--cache",
        help="Caches as an operator meets them: model (as its neighbours leave them), hot or cold.",
        rich_help_panel=_MEASURING,
    ),
]
Remeasure = Annotated[
    str,
    typer.Option(
        help="Measure again what the dataset has: failed (what does not compile, crashes or is wrong), noisy "
        "(under foreign load, cores further apart or slower than usual, or not settled) or all. What failed because of "
        "the machine is tried again anyway.",
        rich_help_panel=_MEASURING,
    ),
]
Schedules = Annotated[
    str,
    typer.Option(
        help="Schedule records to compile with: auto (this processor's), none (the compiler's own schedules), or "
        "the folder that holds them.",
        rich_help_panel=_MEASURING,
    ),
]

Host = Annotated[
    str | None, typer.Option(help="Of an RPC tracker, or of an RPC server itself.", rich_help_panel=_DEVICE)
]
Port = Annotated[int | None, typer.Option(help="Its port.", rich_help_panel=_DEVICE)]
DeviceKey = Annotated[
    str | None,
    typer.Option(help="Which of the tracker's machines. Default: the target's name.", rich_help_panel=_DEVICE),
]

Cluster = Annotated[
    str | None,
    typer.Option(
        help="Measure on other machines: tcp://HOST:PORT of 'op-profiler scheduler', local:N for N workers here, "
        "slurm:FILE for jobs of SLURM, or kubernetes:FILE for pods of Kubernetes.",
        rich_help_panel=_DEVICE,
    ),
]
Each = Annotated[
    bool,
    typer.Option(
        "--each/--any",
        help="With --cluster: on every distinct device, or on any free one of the target's kind.",
        rich_help_panel=_DEVICE,
    ),
]
Needs = Annotated[
    str | None,
    typer.Option(
        help="With --cluster: what a machine has to have: features of its processor, words of its name, memory, by "
        "commas: avx512f,EPYC,60GiB.",
        rich_help_panel=_DEVICE,
    ),
]
Report = Annotated[
    Path | None,
    typer.Option(
        help="Also write a page of what came of it: one HTML file, which needs no network.", rich_help_panel=_OUTPUT
    ),
]
Db = Annotated[
    str,
    typer.Option(help="Dataset: the path of a SQLite file (.db), or an SQLAlchemy address.", rich_help_panel=_OUTPUT),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON value in place of text.", rich_help_panel=_OUTPUT)]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", help="No progress and no tables: at most a few lines, and errors.", rich_help_panel=_OUTPUT
    ),
]
