"""How far off is the included predictor of the GPU: for unseen families of networks, and for networks that it looks up?

    python benchmarks/gpu_predictor.py

Families of networks are held out one after the other, with all of their operators: a predictor is fitted to the rest.
For networks whose kernels were all measured, the predicted time beyond the kernels
(`op_profiler.prediction.latency.launching`), fitted to the other families, is compared with the whole model.

Goal: networks 5 % off on average, 90 % within 10 %.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from common import at_least, at_most, every, provenance, store

if TYPE_CHECKING:
    from common import Tables

_LONG_US = 20.0


def held_out(examples: Any, family: np.ndarray) -> tuple[list[dict[str, Any]], np.ndarray, np.ndarray]:
    """A row a network; ratios of the estimates of its operators to their times, and whether intervals hold them."""
    from op_profiler.prediction.latency.fit import fit
    from op_profiler.prediction.latency.launching import Launching
    from op_profiler.prediction.latency.operator_predictor import query_of

    rows, ratios, holds = [], [], []
    for name in sorted(set(family) - {""}):
        mine = family[examples.model] == name
        taught = examples.where(~np.isin(examples.operator, examples.operator[mine]) & ~mine)
        launching = Launching.of(examples.where(~mine))
        asked = examples.where(mine)
        found = fit(taught).predict(query_of(asked))
        ratio = found.latency_us / asked.latency_us
        ratios.append(ratio)
        holds.append((found.low_us <= asked.latency_us) & (asked.latency_us <= found.high_us))
        for model in np.unique(asked.model):
            of = asked.model == model
            times = asked.latency_us[of] * asked.occurrences[of]
            operators = [asked.operators[at] for at in asked.operator[of]]
            off = (ratio[of] * times).sum() / times.sum() - 1  # no number where a dtype was never measured elsewhere
            whole_us = launching.total_us(float(times.sum()), operators, asked.occurrences[of]) if launching else np.nan
            rows.append(
                {
                    "family": name,
                    "model": asked.models[model],
                    "kernels_us": round(float(times.sum()), 1),
                    "whole_model_us": round(float(asked.whole_model_us[of][0]), 1),
                    "without_estimate": int(np.isnan(ratio[of]).sum()),
                    "kernels_off_percent": round(100 * float(off), 1) if np.isfinite(off) else None,
                    "whole_off_percent": round(100 * float(whole_us / asked.whole_model_us[of][0] - 1), 1),
                }
            )
    return rows, np.concatenate(ratios), np.concatenate(holds)


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    Networks without an estimate have no error, and are in no mean.
    """
    gpus = tables.get("gpus", ())
    near = [at_least(row["within_10_percent"], 90) for row in gpus]
    return every([*near, *(at_most(row["mean_off_percent"], 5) for row in gpus)])


def main() -> None:
    from op_profiler.prediction.latency.examples import load_examples
    from op_profiler.prediction.latency.families import families_in
    from op_profiler.prediction.latency.open_predictor import with_loops
    from op_profiler.shipped import shipped_gpus

    print(provenance())
    tables: dict[str, list[dict[str, Any]]] = {"gpus": []}
    told = []
    for ships in shipped_gpus():
        examples = load_examples(file=ships.operators)
        examples = with_loops(examples, examples.devices[0].target, print)
        families, names = families_in([examples]), zip(examples.models, examples.sampled)
        family = np.array(["" if sampled else families[name] for name, sampled in names])
        rows, ratios, holds = held_out(examples, family)
        off = np.abs([row["kernels_off_percent"] for row in rows if not row["without_estimate"]])
        whole = np.abs([row["whole_off_percent"] for row in rows])
        of_operators = np.abs(ratios - 1) * 100
        long = np.concatenate(
            [examples.latency_us[family[examples.model] == name] for name in sorted(set(family) - {""})]
        )
        told_long = (long > _LONG_US) & np.isfinite(ratios)
        summary = {
            "gpu": ships.folder.name,
            "measurements": len(examples),
            "networks": len(rows),
            "networks_without_estimate": len(rows) - len(off),
            "mean_off_percent": round(float(off.mean()), 1),
            "median_off_percent": round(float(np.median(off)), 1),
            "within_10_percent": round(float((off <= 10).mean()) * 100),
            "operators_mean_off_percent": round(float(of_operators[told_long].mean()), 1),
            "operators_median_off_percent": round(float(np.median(of_operators[told_long])), 1),
            "intervals_hold_percent": round(float(holds[np.isfinite(ratios)].mean()) * 100),
            "whole_from_kernels_mean_off_percent": round(float(whole.mean()), 1),
            "whole_from_kernels_median_off_percent": round(float(np.median(whole)), 1),
        }
        print(summary)
        tables["gpus"].append(summary)
        tables[ships.folder.name.replace("-", "_")] = rows
        told.append(
            f"{summary['gpu']}: kernels of unseen families {summary['mean_off_percent']}% off on average (median "
            f"{summary['median_off_percent']}%), intervals hold {summary['intervals_hold_percent']}%; whole networks "
            f"from measured kernels {summary['whole_from_kernels_mean_off_percent']}% (median "
            f"{summary['whole_from_kernels_median_off_percent']}%)"
        )
    store(__file__, "; ".join(told), tables, whole=True)


if __name__ == "__main__":
    main()
