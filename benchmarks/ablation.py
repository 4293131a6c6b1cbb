"""What each group of features, the model of kernels and the data bring to predictions: left out one by one.

    python benchmarks/ablation.py [--device NAME] [--db DB]       (default: what ships of this processor; half an hour)

Families of networks are held out in groups, as in `held_out_models.py`: regressions are fitted without a group's
networks, without what was sampled from them, and without their operators wherever else those were measured. Nothing is
looked up or interpolated. Scored are the networks that features may be chosen by (`held_out_models.looked_at`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from common import provenance, store
from held_out_models import looked_at

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.predict.latency.base import Base
    from op_profiler.predict.latency.examples import Examples
    from op_profiler.predict.latency.query import Query

    Columns = Callable[[Base, Query], np.ndarray]


def variants() -> dict[str, tuple[Columns, bool]]:
    """What regressions see, and whether they start from the model of kernels; by what is left out."""
    from op_profiler.predict.latency import default_schedule
    from op_profiler.predict.latency.features import NAMES
    from op_profiler.predict.latency.loop_columns import NAMES as LOOPS
    from op_profiler.predict.latency.loop_columns import SLOW
    from op_profiler.predict.latency.query import SETTING_NAMES

    everything = [*NAMES, *SETTING_NAMES, "device", *LOOPS, "model", "model of kinds"]

    def without(names: tuple[str, ...], starts: bool = True) -> tuple[Columns, bool]:
        kept = [at for at, name in enumerate(everything) if name not in names]
        return (lambda base, query: base.columns(query)[:, kept]), starts

    def of(*words: str) -> tuple[str, ...]:
        return tuple(name for name in LOOPS if any(word in name for word in words))

    return {
        "nothing": without(()),
        "all that loops tell": without((*LOOPS, "model", "model of kinds"), starts=False),
        "the model of kernels": without(("model", "model of kinds"), starts=False),
        "starting from that model": without((), starts=False),
        "how often a network calls": without(("calls",)),
        "loops: traffic of caches": without(of("past_", "scattered", "to_memory", "from_memory")),
        "loops: strides and evictions": without(of("stride", "aliasing", "evicted")),
        "loops: instructions and sums": without(of("main_instructions", "multiply_adds", "chain", "main_accumulators")),
        "code: what is executed": without(of("executed", *(f"{name}_share" for name in SLOW))),
        "loops: what one thread does": without(of("serial", "stages", "packed")),
        "rules of default schedules": without(default_schedule.NAMES),
    }


def predicted(examples: Examples, variant: tuple[Columns, bool], keep: Callable[[Examples], np.ndarray]) -> np.ndarray:
    """Microseconds of every entry of a network, NaN for sampled operators.

    Args:
        variant: of `variants`.
        keep: mask of what may be learned from.
    """
    import numpy as np

    from op_profiler.predict.latency import PREDICTORS
    from op_profiler.predict.latency.base import Base
    from op_profiler.predict.latency.fit import weights_of
    from op_profiler.predict.latency.held_out import family_groups
    from op_profiler.predict.latency.predictor import query_of
    from op_profiler.predict.latency.regression import fit_all
    from op_profiler.predict.latency.roofline import Roofline

    device, query, weight = examples.devices[0], query_of(examples), weights_of(examples)
    latency_us, found = examples.latency_us, np.full(len(examples), np.nan)
    method, usable, (columns, starts) = PREDICTORS.get("default"), keep(examples), variant
    for held in family_groups(examples):
        train = usable & ~np.isin(examples.operator, np.unique(examples.operator[held]))
        known = query.take(train)
        roofline = Roofline.of(known.amounts, known.threads, latency_us[train], device.peaks, device.cache_bytes)
        bound = roofline.bound_us(query.amounts, query.threads)
        target = np.log(latency_us / bound)
        base = Base.fit(roofline, known, latency_us[train], weight[train])
        models = method.regressors(0)
        laws = np.nan_to_num(base.columns(query)[:, -2:].astype(np.float64))
        start = [laws[:, number % 2] * starts for number in range(len(models))]
        fit_all(models, columns(base, known), [(target - s)[train] for s in start], weight[train])
        asked = columns(base, query.take(held))
        estimates = [model.predict(asked) + s[held] for model, s in zip(models, start)]
        found[held] = bound[held] * np.exp(method.combined(estimates))
    return found


def errors(examples: Examples, latency_us: np.ndarray) -> dict[str, Any]:
    """Of whole networks that may be looked at, and of their operators above 20 us."""
    import numpy as np

    from op_profiler.predict.latency.held_out import HEAVY_US

    shown = np.array([looked_at(name) for name in examples.models]) & ~examples.sampled
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
    parser.add_argument("--device", help="a processor that ships, or a device of --db")
    parser.add_argument("--db", help="a dataset in place of what ships")
    arguments = parser.parse_args()
    import numpy as np

    from op_profiler.predict.latency.open_predictor import examples_for
    from op_profiler.predict.latency.steady_times import steady

    print(provenance())
    examples = steady(examples_for(db=arguments.db, device=arguments.device, note=print))
    processor = examples.devices[int(examples.device[0])].processor
    half = np.random.default_rng(0).permutation(len(examples.operators)) % 2 == 0
    keeps: dict[str, Callable[[Examples], np.ndarray]] = {
        "half of the operators": lambda e: half[e.operator],
        "all sampled operators": lambda e: ~e.sampled[e.model],
    }
    everything = variants()
    runs = [(name, variant, lambda e: np.ones(len(e), dtype=bool)) for name, variant in everything.items()]
    runs += [(name, everything["nothing"], keep) for name, keep in keeps.items()]
    rows = []
    for name, variant, keep in runs:
        rows.append({"left_out": name, **errors(examples, predicted(examples, variant, keep))})
        print(rows[-1], flush=True)
    operators = " and ".join(f"{row['operators_percent']} %" for row in rows[:2])
    headline = (
        f"{processor}: networks {rows[0]['networks_percent']} % off on average, {rows[1]['networks_percent']} % "
        f"without what loops tell; operators above 20 us {operators}"
    )
    store(__file__, headline, {"left_out": rows}, whole=arguments.db is None)


if __name__ == "__main__":
    main()
