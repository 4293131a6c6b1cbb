"""Which operators compute what their framework computes? Every operator of ONNX, torch and TFLite, off its defaults.

The cases are: every operator of ONNX's specification that is in force at opsets 7 to 22, in each version, with each
attribute off its default, each optional input and further types, next to onnxruntime; each operator of torch that the
importer supports, with the samples of torch's own tests; every builtin operator of TFLite that the importer supports,
float and quantized, next to LiteRT. Each case is imported and built as the tool does, and runs on random numbers. Each
framework takes about a quarter of an hour on two cores. Results are stored in a file, and the next run resumes there.

Goal: no operator differs or crashes, and no refusal is a text of TVM's.
"""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agreement_common import Case, Outcome, Verdict, found_of, judge, none_wrong, serve, totals, wrong_rows
from common import provenance, store

if TYPE_CHECKING:
    from common import Tables

SETS = ("onnx", "torch", "tflite")
_TITLES = {"onnx": "ONNX", "torch": "torch", "tflite": "TFLite"}


def cases_of(framework: str) -> dict[str, Case]:
    """All cases of a framework by their names; an importer's process needs no other one's."""
    return {case.name: case for case in importlib.import_module(f"operator_sets.{framework}_cases").cases()}


def shares(framework: str, found: dict[str, Verdict], operators: dict[str, str]) -> dict[str, Any]:
    """How many cases and operators agree. An operator counts by its worst case.

    Args:
        operators: of the cases, by their names.
    """
    of_operator: dict[str, set[Outcome]] = {}
    for name, verdict in found.items():
        if verdict.outcome not in (Outcome.INVALID, Outcome.ABSENT):
            of_operator.setdefault(operators[name], set()).add(verdict.outcome)
    wrong = {Outcome.DIFFERS, Outcome.CRASHES}
    return {
        "framework": framework,
        **totals(found.values()),
        "operators": len(of_operator),
        "operators_that_agree": sum(seen == {Outcome.AGREES} for seen in of_operator.values()),
        "operators_that_agree_or_are_refused": sum(not seen & wrong for seen in of_operator.values()),
        "operators_that_are_refused": sum(seen == {Outcome.REFUSED} for seen in of_operator.values()),
    }


def claim(tables: Tables) -> str:
    """Return the sentence of the README, with its number from the stored tables."""
    wrong = sum(row["differs"] + row["crashes"] for row in tables["shares"])
    cases = sum(row["cases"] for row in tables["shares"])
    return f"{wrong} of {cases:,} test cases, each with a single operator, compute a wrong result."


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing."""
    return none_wrong(tables, SETS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SETS, help="one framework")
    parser.add_argument("--operators", metavar="A,B", help="these operators only")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="verdicts of earlier runs, which go on from there")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at once")
    parser.add_argument("--serve", choices=SETS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        cases = cases_of(arguments.serve)
        serve(lambda name: judge(cases[name]))
        return
    print(provenance())
    wanted = arguments.operators.split(",") if arguments.operators else None
    rows: list[dict[str, Any]] = []
    told: list[dict[str, str]] = []
    for framework in [arguments.only] if arguments.only else SETS:
        operators = {n: c.operator for n, c in cases_of(framework).items() if wanted is None or c.operator in wanted}
        found = found_of(framework, list(operators), arguments.keep, arguments.jobs, __file__)
        rows.append(shares(framework, found, operators))
        told += wrong_rows(framework, found)
    for row in rows:
        print(", ".join(f"{name} {value}" for name, value in row.items()))
    headline = "; ".join(
        f"{_TITLES[row['framework']]}: of {row['cases']:,} test cases with a single operator each, "
        f"{row['agrees'] / row['cases']:.1%} agree with the framework, "
        f"{row['refused'] / row['cases']:.1%} are refused, {row['differs'] + row['crashes']} are wrong"
        for row in rows
        if row["cases"]
    )
    print(headline)
    tables = {"shares": rows, **({"wrong_or_unclear": told} if told else {})}
    store(__file__, headline, tables, whole=not (arguments.only or wanted))


if __name__ == "__main__":
    main()
