"""What do the groups of features, the model of kernels and the data each contribute to predictions?

    python benchmarks/ablation.py [--device NAME] [--db DB]       (default: included data of this processor; all cores)

Each group is removed in turn. Families of networks are held out in groups, as in `held_out_models.py`: regressions are
fitted without the networks of a group, without operators sampled from them, and without measurements of their operators
in other networks. Look-ups and interpolation are disabled. The errors are those of the development set
(`network_sets_common.py`), by which features may be chosen.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

from common import provenance, store
from network_sets_common import DEVELOPMENT, sets_of, spent_seeds

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.prediction.latency.base import Base
    from op_profiler.prediction.latency.examples import Examples
    from op_profiler.prediction.latency.query import Query

    Columns = Callable[[Base, Query], np.ndarray]

NOTHING = "nothing"
DATA = ("half of the operators", "all sampled operators")
"""What is left out of the data, one at a time."""


def variants() -> dict[str, tuple[Columns, bool]]:
    """What regressions see, and whether they start from the model of kernels; by what is left out."""
    from op_profiler.prediction.latency.features import NAMES
    from op_profiler.prediction.latency.loop_columns import NAMES as LOOPS
    from op_profiler.prediction.latency.loop_columns import SLOW
    from op_profiler.prediction.latency.query import SETTING_NAMES

    everything = [*NAMES, *SETTING_NAMES, "device", *LOOPS, "model", "model of kinds"]

    def without(names: tuple[str, ...], starts: bool = True) -> tuple[Columns, bool]:
        kept = [at for at, name in enumerate(everything) if name not in names]
        return (lambda base, query: base.columns(query)[:, kept]), starts

    def of(*words: str) -> tuple[str, ...]:
        return tuple(name for name in LOOPS if any(word in name for word in words))

    return {
        NOTHING: without(()),
        "all features of loops": without((*LOOPS, "model", "model of kinds"), starts=False),
        "the model of kernels": without(("model", "model of kinds"), starts=False),
        "starting from that model": without((), starts=False),
        "how often a network calls": without(("calls",)),
        "loops: traffic of caches": without(of("past_", "scattered", "to_memory", "from_memory")),
        "loops: strides and evictions": without(of("stride", "aliasing", "evicted")),
        "loops: instructions and sums": without(of("main_instructions", "multiply_adds", "chain", "main_accumulators")),
        "code: what is executed": without(of("executed", *(f"{name}_share" for name in SLOW))),
        "loops: what one thread does": without(of("serial", "stages", "packed")),
    }


def kept(examples: Examples, left_out: str) -> np.ndarray:
    """Mask of what may be learned from."""
    import numpy as np

    if left_out == "half of the operators":
        half = np.random.default_rng(0).permutation(len(examples.operators)) % 2 == 0
        return np.asarray(half[examples.operator])
    if left_out == "all sampled operators":
        return ~examples.sampled[examples.model]
    return np.ones(len(examples), dtype=bool)


def predicted(examples: Examples, held: np.ndarray, lefts_out: Sequence[str]) -> dict[str, np.ndarray]:
    """Microseconds of the entries of `held`, a mask, by what is left out. The model of kernels is fitted once.

    Args:
        lefts_out: all of features or of the model, or one of data.
    """
    import numpy as np

    from op_profiler.prediction.latency import PREDICTORS
    from op_profiler.prediction.latency.base import Base
    from op_profiler.prediction.latency.fit import weights_of
    from op_profiler.prediction.latency.operator_predictor import query_of
    from op_profiler.prediction.latency.regression import fit_all
    from op_profiler.prediction.latency.roofline import Roofline

    device, query, weight = examples.devices[0], query_of(examples), weights_of(examples)
    latency_us, method = examples.latency_us, PREDICTORS.get("default")
    train = kept(examples, lefts_out[0]) & ~np.isin(examples.operator, np.unique(examples.operator[held]))
    known, asked = query.take(train), query.take(held)
    roofline = Roofline.of(known.amounts, known.threads, latency_us[train], device.peaks, device.cache_bytes)
    bound = roofline.bound_us(query.amounts, query.threads)
    target = np.log(latency_us / bound)
    base = Base.fit(roofline, known, latency_us[train], weight[train])
    laws = np.nan_to_num(base.columns(query)[:, -2:].astype(np.float64))
    found = {}
    for left_out in lefts_out:
        columns, starts = variants().get(left_out, variants()[NOTHING])
        models = method.regressors(0)
        start = [laws[:, number % 2] * starts for number in range(len(models))]
        fit_all(models, columns(base, known), [(target - s)[train] for s in start], weight[train])
        seen = columns(base, asked)
        estimates = [model.predict(seen) + s[held] for model, s in zip(models, start)]
        found[left_out] = bound[held] * np.exp(method.combined(estimates))
    return found


def all_predicted(examples: Examples) -> Iterator[tuple[str, np.ndarray]]:
    """What is left out, and microseconds of every entry of a network; NaN for sampled operators."""
    import numpy as np

    from op_profiler.cores import usable_cores
    from op_profiler.prediction.latency.held_out import family_groups

    groups = family_groups(examples)
    with ProcessPoolExecutor(usable_cores(), mp_context=multiprocessing.get_context("spawn")) as pool:
        runs = [
            (lefts_out, [pool.submit(predicted, examples, held, lefts_out) for held in groups])
            for lefts_out in (tuple(variants()), *((data,) for data in DATA))
        ]
        for lefts_out, tasks in runs:
            parts = [task.result() for task in tasks]
            for left_out in lefts_out:
                found = np.full(len(examples), np.nan)
                for held, part in zip(groups, parts):
                    found[held] = part[left_out]
                yield left_out, found


def errors(examples: Examples, latency_us: np.ndarray) -> dict[str, Any]:
    """Of whole networks that may be looked at, and of their operators above 20 us."""
    import numpy as np

    from op_profiler.prediction.latency.held_out import HEAVY_US

    sets = sets_of([examples], spent_seeds())
    shown = np.array([sets[name] == DEVELOPMENT for name in examples.models]) & ~examples.sampled
    inside = shown[examples.model]
    heavy = inside & (examples.latency_us > HEAVY_US)
    runs = np.unique(np.stack([examples.model[inside], examples.threads[inside]]), axis=1).T
    wholes = []
    for model, threads in runs:
        mine = (examples.model == model) & (examples.threads == threads)
        whole = examples.whole_model_us[mine][0]
        if np.isfinite(whole):
            wholes.append(float((latency_us[mine] * examples.occurrences[mine]).sum() / whole - 1))
    size = np.abs(wholes)
    return {
        "operators_percent": round(100 * float(np.abs(latency_us / examples.latency_us - 1)[heavy].mean()), 1),
        "networks_percent": round(100 * float(size.mean()), 1),
        "within_10_percent": round(100 * float((size <= 0.1).mean())),
        "worst_percent": round(100 * float(size.max())),
        "networks": len(size),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="a processor with included data, or a device of --db")
    parser.add_argument("--db", help="a dataset in place of the included data")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # a group of families a core
    from op_profiler.prediction.latency.open_predictor import examples_for
    from op_profiler.prediction.latency.steady_times import at_reference_state

    print(provenance())
    examples = at_reference_state(examples_for(db=arguments.db, device=arguments.device, note=print))
    processor = examples.only_device.processor
    rows = []
    for left_out, latency_us in all_predicted(examples):
        rows.append({"left_out": left_out, **errors(examples, latency_us)})
        print(rows[-1], flush=True)
    operators = " and ".join(f"{row['operators_percent']} %" for row in rows[:2])
    headline = (
        f"{processor}: networks {rows[0]['networks_percent']} % off on average, {rows[1]['networks_percent']} % "
        f"without the features of loops; operators above 20 us {operators}"
    )
    store(__file__, headline, {"left_out": rows}, whole=arguments.db is None)


if __name__ == "__main__":
    main()
