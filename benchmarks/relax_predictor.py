"""Do Relay's rows help to predict Relax's networks? Every family of networks is held out, three times.

    python benchmarks/relax_predictor.py DB         (DB, or sqlite:///DB, has the same networks under both compilers)

The dataset has to be of this machine, because the collector stores the loops of Relax's kernels in the cache folder. It
takes about a minute per model. A predictor needs 25 rows: if fewer are left without a family, the family is reported as
one with too few rows.

    for model in dcgan squeezenet_v1.1 mobilenet resnet-18 shufflenet_v2_x1_0 mnasnet0_5; do
      for compiler in relay relax; do
        op_performance_collector.py --modelname $model --compiler $compiler --threads 1,2 --db DB; done; done

A family is held out under both compilers. The predictors for its networks under Relax are fitted to the other networks'
rows of Relay, of Relax, or of both. No feature of the third predictor names the compiler: it distinguishes compilers by
the loops of their kernels, and looks times up among Relax's rows only.

Goal: rows of both are closer than those of either.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from common import provenance, store

if TYPE_CHECKING:
    import numpy as np
    from common import Tables

    from op_profiler.prediction.latency.examples import Examples
    from op_profiler.prediction.latency.network import NetworkPrediction
    from op_profiler.prediction.latency.operator_predictor import OperatorPredictor

SIDES = ("relay", "relax", "both")
NETWORKS = ("dcgan", "squeezenet_v1.1", "mobilenet", "resnet-18", "shufflenet_v2_x1_0", "mnasnet0_5")
_FOLDS = 3


def note(text: str) -> None:
    """Tell at once what is done, also to a file."""
    print(f"# {text}", flush=True)


def both_compilers(db: str) -> Examples:
    """Rows of both, as of one device. An operator that both have stands twice, since its loops differ."""
    import numpy as np

    from op_profiler.compilers.compiler import use_compiler
    from op_profiler.errors import DatasetError
    from op_profiler.prediction.latency.examples import load_examples
    from op_profiler.prediction.latency.loops import loops_of
    from op_profiler.prediction.latency.query import unknown_loops
    from op_profiler.prediction.latency.steady_times import at_reference_state

    examples = at_reference_state(load_examples(db=db, note=note))
    compilers = np.array([device.compiler for device in examples.devices])
    if sorted(compilers) != ["relax", "relay"]:
        raise DatasetError(f"{db} has devices of {', '.join(compilers) or 'nothing'}; one of each compiler is needed")
    relax = compilers[examples.device] == "relax"
    (relay_device,) = (device for device in examples.devices if device.compiler == "relay")
    (relax_device,) = (device for device in examples.devices if device.compiler == "relax")
    count = len(examples.operators)
    loops = np.concatenate([unknown_loops(count), unknown_loops(count)])
    for first, device in ((count, relax_device), (0, relay_device)):
        used = np.unique(examples.operator[compilers[examples.device] == device.compiler])
        use_compiler(device.compiler)  # relax's loops were kept, so its TVM is not asked
        loops[first + used] = loops_of([examples.operators[at] for at in used], device.target, note)
        known = np.isfinite(loops[first + used]).all(axis=1)
        note(f"loops of {int(known.sum())} of {len(used)} operators under {device.compiler}")
    return dataclasses.replace(
        examples,
        operators=examples.operators * 2,
        operator=examples.operator + np.where(relax, count, 0),
        device=relax.astype(np.intp),
        devices=[relay_device, relay_device],
        loops=loops,
    )


def fitted(examples: Examples, side: str, kin: np.ndarray) -> OperatorPredictor:
    """A predictor of one device from the rows of a side, without a family."""
    import numpy as np

    from op_profiler.prediction.latency.fit import fit, measured_of
    from op_profiler.prediction.latency.operator_predictor import query_of

    of_side = {"relay": examples.device == 0, "relax": examples.device == 1, "both": np.ones(len(examples), bool)}[side]
    rows = examples.where(of_side & ~kin)
    found = fit(dataclasses.replace(rows, device=np.zeros_like(rows.device)), folds=_FOLDS)
    if side == "both":
        own = examples.where((examples.device == 1) & ~kin)
        found = dataclasses.replace(found, measured=measured_of(own, query_of(own)))
    return found


def predictions(examples: Examples, too_few: list[str]) -> Iterator[tuple[str, float, np.ndarray, NetworkPrediction]]:
    """Side, time of a network of Relax, times of its operators, and what was predicted without its family.

    Args:
        too_few: families without which no predictor can be fitted are added.
    """
    import numpy as np

    from op_profiler.errors import DatasetError
    from op_profiler.prediction.latency.families import families_in
    from op_profiler.prediction.latency.network import Network, predict_network

    family_of = families_in([examples])
    families = np.array([family_of[name] for name in examples.models])
    of_relax = np.unique(examples.model[examples.device == 1])
    assert examples.loops is not None
    held_out = list(dict.fromkeys(families[of_relax]))
    started = time.monotonic()
    for number, family in enumerate(held_out, start=1):
        for side in SIDES:
            note(
                f"{time.monotonic() - started:.0f} s: {family} ({number} of {len(held_out)}), fitting to rows of {side}"
            )
            try:
                predictor = fitted(examples, side, families[examples.model] == family)
            except DatasetError as error:
                note(f"too few rows of {side} without {family}: {error}")
                too_few.append(f"{family}: {side}")
                continue
            for model in of_relax[families[of_relax] == family]:
                mine = (examples.model == model) & (examples.device == 1)
                for threads in np.unique(examples.threads[mine]):
                    rows = np.flatnonzero(mine & (examples.threads == threads))
                    places = examples.operator[rows]
                    network = Network.of_calls(
                        examples.models[model],
                        [examples.operators[at] for at in places],
                        examples.occurrences[rows].tolist(),
                        examples.loops[places],
                    )
                    found = predict_network(predictor, network, threads=int(threads))
                    yield side, float(examples.whole_model_us[rows[0]]), examples.latency_us[rows], found


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    The mean errors of whole networks are compared.
    """
    off = {row["rows_of"]: row["mean_error_percent"] for row in tables.get("sides", ())}
    return off["both"] < min(off["relay"], off["relax"]) if off.keys() >= set(SIDES) else None


def main() -> None:
    import numpy as np

    from op_profiler.prediction.latency.held_out import HEAVY_US

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("db", metavar="DB", help="file, or SQLAlchemy address, of the dataset")
    db = parser.parse_args().db
    print(provenance(), flush=True)
    networks: list[dict[str, Any]] = []
    too_few: list[str] = []
    heavy: dict[str, list[np.ndarray]] = {side: [] for side in SIDES}
    examples = both_compilers(db if "://" in db else f"sqlite:///{db}")
    for side, measured_us, operators_us, found in predictions(examples, too_few):
        error = found.total_us / measured_us - 1
        row = {
            "network": found.network.name,
            "threads": found.threads,
            "rows_of": side,
            "measured_us": round(measured_us),
            "error_percent": round(100 * error, 1),
            "interval_holds": bool(found.low_us <= measured_us <= found.high_us),
        }
        networks.append(row)
        told = f"{row['network']:28} {row['threads']} {side:6} {row['measured_us']:10} {row['error_percent']:+7.1f} %"
        print(told, flush=True)
        heavy[side].append(np.abs(found.operators.latency_us / operators_us - 1)[operators_us > HEAVY_US])
    if not networks:
        sys.exit("no family can be held out: collect more networks under both compilers")
    sides = []
    for side in sorted({row["rows_of"] for row in networks}, key=SIDES.index):
        off = np.array([abs(row["error_percent"]) for row in networks if row["rows_of"] == side])
        of_operators = np.concatenate(heavy[side])
        sides.append(
            {
                "rows_of": side,
                "networks": len(off),
                "mean_error_percent": round(float(np.nanmean(off)), 1),
                "within_10_percent": round(100 * float(np.mean(off <= 10))),
                "operators": len(of_operators),
                f"operators_above_{HEAVY_US:.0f}_us_percent": round(100 * float(np.nanmean(of_operators)), 1),
            }
        )
        print(*(f"{name} {value}" for name, value in sides[-1].items()), sep=", ")
    headline = "networks of Relax held out, mean error with rows of " + ", ".join(
        f"{one['rows_of']} {one['mean_error_percent']} %" for one in sides
    )
    if too_few:
        headline += f"; too few rows without {', '.join(too_few)}"
    store(
        __file__,
        headline,
        {"sides": sides, "networks": networks},
        whole={row["network"] for row in networks} >= set(NETWORKS),
        inputs=[db],
    )


if __name__ == "__main__":
    main()
