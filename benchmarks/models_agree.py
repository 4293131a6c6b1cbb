"""Which whole models compute what torch computes? Random graphs, and the models of three libraries.

The cases are: 400 random graphs of torch operators (`drawn_graphs_common`), each model type of the installed
transformers, with a small configuration (`small_transformers_common`), and each model of torchvision and
pretrainedmodels at its usual size. Each is lowered, built by relay and compared with torch as a collection does it,
with random weights. A model that the library cannot build, or whose outputs decide nothing, has no reference. It takes
some hours on two cores. With ``--keep``, the next run at the same commit resumes there.

Goal: no model differs or crashes, and no refusal is a text of TVM's.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agreement_common import Outcome, Verdict, found_of, none_wrong, serve, totals, wrong_rows
from common import provenance, store
from drawn_graphs_common import drawn_graph
from small_transformers_common import SEQUENCE, NoSmallConfigurationError, write_small

if TYPE_CHECKING:
    from common import Tables

    from op_profiler.compilers.imported_model import Agreement

SETS = ("drawn", "transformers", "local")
_TITLES = {
    "drawn": "random graphs",
    "transformers": "transformers",
    "local": "torchvision and pretrainedmodels",
}
_GRAPHS = 400
_SECONDS = 600.0
_MODELS_OF_A_PROCESS = {"drawn": 40}
_USUAL_MODELS_OF_A_PROCESS = 10


def names_of(source: str) -> list[str]:
    """All models of a set."""
    from op_profiler.frontends import FRONTENDS

    if source == "drawn":
        return [f"graph {seed}" for seed in range(_GRAPHS)]
    return FRONTENDS.get(source).names()


def judge(source: str, name: str) -> Verdict:
    """Compare one model with torch."""
    with tempfile.TemporaryDirectory() as text:
        os.environ["OP_PROFILER_CACHE"] = str(Path(text) / "cache")  # no build is needed twice, and all take gigabytes
        if source == "drawn":
            return _compared(lambda: _drawn(int(name.rpartition(" ")[2])), name)
        if source != "transformers":
            return _compared(lambda: _loaded(source, name), name)
        folder = Path(text) / name
        try:
            write_small(name, folder)
        except NoSmallConfigurationError as error:
            return Verdict(Outcome.INVALID, str(error))
        return _compared(lambda: _loaded(source, str(folder)), str(folder))


def _loaded(source: str, name: str) -> Agreement | None:
    from op_profiler.building.request import BuildRequest
    from op_profiler.building.requested_model import load_model
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest

    source_of = FRONTENDS.get(source)
    length = SEQUENCE if source == "transformers" and source_of.takes_sequence_length(name) else None
    model = ModelRequest(source=source, name=name, sequence_length=length)
    return load_model(BuildRequest(model=model, schedules="none", check_outputs="always"))[0].agreement


def _drawn(seed: int) -> Agreement | None:
    from op_profiler.building.agreement import with_agreement
    from op_profiler.building.request import BuildRequest
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.frontends.importers import torch as importer

    module, data = drawn_graph(seed)
    lowered = importer.lower(
        module, [data], name=f"graph {seed}", source="file", input_names=["data"], batch_size=len(data)
    )
    model = ModelRequest(source="file", name=lowered.name)
    request = BuildRequest(model=model, schedules="none", check_outputs="always")
    return with_agreement(request, lowered, {}, lambda **_: None).agreement


def _compared(agreement: Callable[[], Agreement | None], name: str) -> Verdict:
    from op_profiler.building.agreement import OutputsDifferError
    from op_profiler.errors import OpProfilerError

    try:
        found = agreement()
    except OutputsDifferError as error:
        return Verdict(Outcome.DIFFERS, _in_one_line(error, name))
    except OpProfilerError as error:
        return Verdict(Outcome.REFUSED, _in_one_line(error, name))
    except Exception as error:  # a traceback to a user
        return Verdict(Outcome.CRASHES, f"{type(error).__name__}: {_in_one_line(error, name)}")
    if found is None or found.outputs_agree is None:
        why = found.outputs_reference if found is not None else None
        is_refused = bool(why) and "does not run as a whole" in str(why)
        return Verdict(Outcome.REFUSED if is_refused else Outcome.INVALID, str(why))
    return Verdict(Outcome.AGREES, f"relative error {found.outputs_error:.1g}")


def _in_one_line(error: BaseException, name: str) -> str:
    return " ".join(str(error).replace(name, Path(name).name).split())[:400]


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing."""
    return none_wrong(tables, SETS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SETS, help="one set")
    parser.add_argument("--models", metavar="A,B", help="these models only")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="verdicts of earlier runs, which go on from there")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at once")
    parser.add_argument("--serve", choices=SETS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(lambda name: judge(arguments.serve, name))
        return
    print(provenance())
    wanted = arguments.models.split(",") if arguments.models else None
    rows: list[dict[str, Any]] = []
    told: list[dict[str, str]] = []
    refused: list[dict[str, str]] = []
    for source in [arguments.only] if arguments.only else SETS:
        names = [name for name in names_of(source) if wanted is None or name in wanted]
        found = found_of(
            source,
            names,
            arguments.keep,
            arguments.jobs,
            __file__,
            seconds=_SECONDS,
            cases_of_a_process=_MODELS_OF_A_PROCESS.get(source, _USUAL_MODELS_OF_A_PROCESS),
        )
        rows.append({"framework": source, **totals(found.values())})
        told += wrong_rows(source, found)
        refused += [
            {"framework": source, "model": name, "why": verdict.detail}
            for name, verdict in found.items()
            if verdict.outcome is Outcome.REFUSED
        ]
    headline = "; ".join(
        f"{_TITLES[row['framework']]}: of {row['cases']:,} models, {row['agrees'] / row['cases']:.1%} agree, "
        f"{row['refused'] / row['cases']:.1%} are refused, {row['differs'] + row['crashes']} are wrong"
        for row in rows
        if row["cases"]
    )
    print(headline)
    tables = {"shares": rows, **({"wrong_or_unclear": told} if told else {}), "refused": refused}
    store(__file__, headline, tables, whole=not (arguments.only or wanted))


if __name__ == "__main__":
    main()
