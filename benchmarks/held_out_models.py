"""How far off are networks of families that the predictor has not seen, at each thread count, on each processor?

    python benchmarks/held_out_models.py [--final] [--device NAME ...] [--db DB] [--keep FILE]

It takes 5 to 30 minutes a processor on two cores. With --keep, an interrupted run continues with the next processor.
Stored rows of processors that a run does not contain stay; the table ``whole_networks`` has the commit of each row.

Whole families of networks (`op_profiler.prediction.latency.families`: by name, and by the layers that take most of
their time) are held out, in seven groups. A predictor is fitted without the networks of a group, without operators
sampled from them, and without measurements of their operators in other networks. It predicts twice: without look-ups
(known: nothing), and with look-ups of the same operators in other families and among sampled operators (known:
look-ups), as for a user. Measured times are at the machine's reference state
(`op_profiler.prediction.latency.steady_times`), because networks on a shared host may take longer for minutes. The
predictor is fitted to the included data of other processors as the included predictor is
(`op_profiler.prediction.latency.fit`), without the families and operators that are held out.

Without --final, the script prints only the development set, by which the predictor may be changed
(`network_sets_common.py` has the sets). --final also shows the test set and stores the result. The test set contains
the networks of zoos whose families nothing was chosen by, and drawn networks of test seeds
(``collector/drawn_networks``, recognised in a dataset by their name). A test seed whose error was shown is spent: its
network then belongs to the development set, and the next figure needs new seeds (``collector/drawn_plan.sh``).
Networks of calibration seeds are left out.

The result also contains how far an operator's time in one network is from the median of its times in other networks.
This difference has two causes: the machine, and the neighbouring operators, of which predictors use only the memory
traffic. Regressions are not expected to be much closer.

Goal: networks 5 % off on average, 90 % within 10 %, none over 25 %; operators above 20 us 7 %; intervals that hold 88
to 92 % of both.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import (
    RESULTS,
    about_all,
    at_least,
    at_most,
    commit,
    each_in_own_process,
    every,
    measured_on,
    provenance,
    store,
    stored_tables,
)
from held_out_common import (
    LOOK_UPS,
    NOTHING,
    Scored,
    by_kind,
    by_origin,
    headline_of,
    line_of,
    network_rows,
    percent,
    together,
)
from network_sets_common import DEVELOPMENT, SPENT, TEST, sets_of, spend, spent_seeds

if TYPE_CHECKING:
    import numpy as np
    from common import Records, Tables

    from op_profiler.prediction.latency.examples import Examples

_FEWEST = 10  # networks of a test set at their thread counts, from which on it is judged


def scored(
    examples: Examples, processor: str, sets: Mapping[str, str], shown: Set[str], others: Sequence[Examples] = ()
) -> Iterator[list[Scored]]:
    """Every network at each thread count, as both predictors see it: a list for each group of families.

    Args:
        examples: of one processor, at the reference state of the machine.
        sets: of each network, by its name.
        shown: sets whose networks are scored.
        others: of other processors, which teach beside it.
    """
    import numpy as np

    from op_profiler.cores import usable_cores
    from op_profiler.prediction.latency.held_out import family_groups

    seen = np.array([sets[name] in shown for name in examples.models])
    groups = [(held, held & seen[examples.model]) for held in family_groups(examples, others)]
    with ProcessPoolExecutor(usable_cores(), mp_context=multiprocessing.get_context("spawn")) as pool:
        tasks = [
            pool.submit(scored_group, examples, processor, sets, held, asked, others)
            for held, asked in groups
            if (asked & ~examples.sampled[examples.model]).any()
        ]
        for task in tasks:
            yield task.result()


def scored_group(
    examples: Examples,
    processor: str,
    sets: Mapping[str, str],
    held: np.ndarray,
    shown: np.ndarray,
    others: Sequence[Examples],
) -> list[Scored]:
    """The networks among `shown`, as predictors see them that know nothing of what is `held`; both are masks."""
    from op_profiler.prediction.latency.held_out import fitted_without, looking_up, predicted_networks

    plain = fitted_without(examples, held, "default", others=others)
    return [
        Scored(processor, sets[found.prediction.network.name], known, found)
        for known, predictor in ((NOTHING, plain), (LOOK_UPS, looking_up(plain, examples.where(~held))))
        for found in predicted_networks(predictor, once_each(examples.where(shown)))
    ]


def once_each(examples: Examples) -> Examples:
    """Networks alone, each once under each kind of schedules: its times are geometric means over its runs."""
    import numpy as np

    found = examples.where(~examples.sampled[examples.model])
    named = list(zip(examples.models, examples.by_rule.tolist()))
    first_of_name = np.array([named.index(one) for one in named])
    model = first_of_name[found.model]
    _, first, group = np.unique(
        np.stack([model, found.operator, found.threads]), axis=1, return_index=True, return_inverse=True
    )
    runs = np.bincount(group.ravel())

    def over_runs(times_us: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(np.bincount(group.ravel(), np.log(times_us)) / runs)[group.ravel()])

    latency_us, whole_us = over_runs(found.latency_us), over_runs(found.whole_model_us)
    merged = dataclasses.replace(found, model=model, latency_us=latency_us, whole_model_us=whole_us)
    return merged.where(np.isin(np.arange(len(found)), first))


def single_runs(examples: Examples, some: Sequence[Scored], processor: str) -> list[dict[str, Any]]:
    """How far single runs of networks are from the mean of several, and from what is predicted: a row a thread count
    and set of networks."""
    import numpy as np

    rows = []
    names = np.array(examples.models)
    for of, threads in sorted({(one.of, one.threads) for one in some}):
        apart, errors, holds = [], [], []
        for one in some:
            if (one.processor, one.of, one.threads, one.known) != (processor, of, threads, NOTHING):
                continue
            if not math.isfinite(one.error):
                continue
            said = one.found.prediction
            by_rule = examples.by_rule == (one.schedules == "rule")
            mine = ((names == said.network.name) & by_rule)[examples.model] & (examples.threads == threads)
            _, first = np.unique(examples.model[mine], return_index=True)
            runs_us = examples.whole_model_us[mine][first]
            apart += list(np.log(runs_us / one.found.measured_us)) if len(runs_us) > 1 else []
            errors += list(said.total_us / runs_us - 1)
            holds += list((said.low_us <= runs_us) & (runs_us <= said.high_us))
        if errors:
            size = np.abs(errors)
            rows.append(
                {
                    "processor": processor,
                    "of": of,
                    "threads": threads,
                    "runs": len(errors),
                    "mean_error_percent": percent(size.mean()),
                    "within_10_percent": percent((size <= 0.1).mean(), 0),
                    "inside_interval_percent": percent(np.mean(holds), 0),
                    "from_mean_of_runs_percent": percent(np.abs(apart).mean()) if apart else None,
                    "runs_of_several": len(apart),
                }
            )
    return rows


def by_other_networks(examples: Examples, processor: str) -> list[dict[str, Any]]:
    """How far operators that take long are from the median of their times in other networks: a row a thread count."""
    import numpy as np

    from op_profiler.prediction.latency.held_out import HEAVY_US

    rows = []
    heavy = ~examples.sampled[examples.model] & (examples.latency_us > HEAVY_US)
    for threads in np.unique(examples.threads):
        mine = np.flatnonzero(heavy & (examples.threads == threads))
        order = mine[np.argsort(examples.operator[mine], kind="stable")]
        _, starts = np.unique(examples.operator[order], return_index=True)
        times = [examples.latency_us[group] for group in np.split(order, starts[1:])]
        errors = [np.median(np.delete(of, n)) / of[n] - 1 for of in times if len(of) > 1 for n in range(len(of))]
        if errors:
            size = np.abs(errors)
            rows.append(
                {
                    "processor": processor,
                    "threads": int(threads),
                    "mean_error_percent": percent(size.mean()),
                    "median_error_percent": percent(np.median(size)),
                    "within_10_percent": percent((size <= 0.1).mean(), 0),
                    "operators": len(size),
                }
            )
    return rows


def claim(tables: Tables) -> str:
    """Return the sentence of the README, with its number from the stored tables."""
    rows = [row for row in tables["whole_networks"] if row["of"] == TEST and _is_plain(row)]
    rows = [row for row in rows if row["schedules"] == "default"]
    drawn = [row for row in tables["whole_networks_by_origin"] if row["origin"] == "drawn" and row["of"] != TEST]
    networks, error = _mean_error(rows)
    of_drawn, error_of_drawn = _mean_error(drawn)
    return (
        f"The mean error is {error:.1f} % on the test set ({networks} predictions) and {error_of_drawn:.1f} % on "
        f"random networks of the development set ({of_drawn} predictions)."
    )


def _mean_error(rows: Records) -> tuple[int, float]:
    """Return the number of predictions, and the mean of their absolute errors in percent."""
    networks = sum(row["networks"] for row in rows)
    return networks, sum(row["mean_error_percent"] * row["networks"] for row in rows) / networks


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    The goal is about the test set where nothing is known, of both thread counts together as in the headline. Fewer than
    `_FEWEST` networks of a processor count as unknown.
    """
    rows, operators = tables.get("networks", ()), tables.get("operators_above_20_us", ())
    processors = dict.fromkeys(row["processor"] for row in rows)

    def judged(of: Records, processor: str) -> list[Mapping[str, Any]]:
        mine = [row for row in of if row["processor"] == processor and row["of"] == TEST and _is_plain(row)]
        return [row for row in mine if row.get("schedules", "default") == "default"]

    return every(_reached_by(judged(rows, one), judged(operators, one)) for one in processors)


def _is_plain(row: Mapping[str, Any]) -> bool:
    """Return whether a row is of predictions without look-ups, which all rows of the table `networks` are."""
    return bool(row.get("known", NOTHING) == NOTHING)


def _reached_by(networks: Records, operators: Records) -> bool | None:
    """Return whether the test set of one processor reaches the goal, or None if it is too small."""
    if len(networks) < _FEWEST or not operators:
        return None
    if any(row["error_percent"] is None for row in networks):
        return None
    errors = [abs(row["error_percent"]) for row in networks]
    count = sum(row["operators"] for row in operators)

    def over_operators(name: str) -> float:
        return float(sum(row[name] * row["operators"] for row in operators) / count)

    held = [100 * sum(row["interval_holds"] for row in networks) / len(networks)]
    held += [over_operators("inside_interval_percent")]
    return every(
        [
            at_most(sum(errors) / len(errors), 5),
            at_least(sum(error <= 10 for error in errors) / len(errors), 0.9),
            at_most(max(errors), 25),
            at_most(over_operators("mean_error_percent"), 7),
            *(88 <= percent <= 92 for percent in held),
        ]
    )


def tables_of(device: str | None, db: str | None, final: bool) -> dict[str, Any]:
    """Return the tables of one processor; errors of networks are printed as they are found.

    Args:
        device: a processor with included data, or a device of `db`.
        db: a dataset in place of the included data.
        final: whether the test set is shown, whose seeds are spent by that.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # a group of families a core: fits gain little from a second one
    from op_profiler.prediction.latency.fit import examples_of_other_processors
    from op_profiler.prediction.latency.open_predictor import examples_for, shipped_examples
    from op_profiler.prediction.latency.steady_times import at_reference_state

    examples = at_reference_state(examples_for(db=db, device=device, note=_print_now))
    processor = examples.only_device.processor
    _print_now(f"# {processor}: {len(examples)} measurements of {len(examples.operators)} operators")
    others = [
        at_reference_state(one) for one in examples_of_other_processors(examples, [] if db else shipped_examples())
    ]
    sets = sets_of([examples, *others], spent_seeds(before=commit()))
    found: list[Scored] = []
    for group in scored(examples, processor, sets, {DEVELOPMENT, TEST} if final else {DEVELOPMENT}, others):
        spend(processor, (one.found.prediction.network.name for one in group if one.of == TEST))
        found += group
        _print_now("\n".join(map(line_of, group)))
    networks, operators = together(found)
    tables = {
        "whole_networks": networks,
        "single_runs_of_networks": single_runs(examples, found, processor),
        "operators_above_20_us": operators,
        "operators_above_20_us_by_kind": by_kind(found),
        "operators_above_20_us_by_other_networks": by_other_networks(examples, processor),
        "whole_networks_by_origin": by_origin(found),
        "networks": network_rows(found),
    }
    return {"tables": tables}


def _print_now(text: str) -> None:
    """Print to the standard error output: the last line of the standard output is the result."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--final", action="store_true", help="also the test set, whose seeds are spent by that")
    parser.add_argument("--device", nargs="+", help="processors with included data, or a device of --db; default: all")
    parser.add_argument("--db", help="a dataset in place of the included data")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="results of processors, which a later run reuses")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(tables_of(arguments.one or None, arguments.db, arguments.final)))
        return
    from op_profiler.shipped import shipped_processors

    print(provenance())
    ships = [one.folder.name for one in shipped_processors() if one.operators is not None]
    devices = arguments.device or ([""] if arguments.db else ships)
    options = ["--final"] * arguments.final + (["--db", arguments.db] if arguments.db else [])
    results = [one.result for one in each_in_own_process(__file__, devices, arguments.keep, options)]
    for result in results:
        for row in (row for name, rows in result["tables"].items() if name != "networks" for row in rows):
            print(", ".join(f"{name} {value}" for name, value in row.items()))
    if arguments.final and arguments.db is None:
        keep_results(results)
    else:
        print("development set only: the result is not stored")


def keep_results(results: Sequence[Mapping[str, Any]], folder: Path = RESULTS) -> None:
    """Store the results of processors; stored rows of the other processors stay."""
    stored = stored_tables(__file__, folder=folder)
    about = {name: measured_on()[name] for name in ("date", "commit")}
    measured = {row["processor"] for result in results for row in result["tables"]["whole_networks"]}
    tables: dict[str, list[dict[str, Any]]] = {}
    for name in results[0]["tables"]:
        earlier = [row for row in stored.get(name, []) if row["processor"] not in measured]
        new = [row for result in results for row in result["tables"].get(name, [])]
        rows = earlier + [row | about if name == "whole_networks" else row for row in new]
        tables[name] = sorted(rows, key=lambda row: str(row["processor"]))
    headline = headline_of(tables["whole_networks"], tables["operators_above_20_us"])
    print(headline)
    tables[SPENT] = stored.get(SPENT, [])
    tables = {name: rows for name, rows in tables.items() if rows}
    store(
        __file__,
        headline,
        tables,
        whole=True,
        folder=folder,
        provenance=about_all(__file__, measured_on(), folder=folder),
    )


if __name__ == "__main__":
    main()
