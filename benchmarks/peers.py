"""How fast is the code next to other runtimes: whole networks in onnxruntime, ncnn, OpenVINO and torch, in turns?

    python benchmarks/peers.py [NETWORK ...] [--keep FILE]        (about two minutes a network)

Weights are random and nothing is downloaded. Networks run at one thread, and at two if there are two cores. *Default
over this*: the time of the build with TVM's own schedules divided by that of the runtime in the same round (median over
the rounds). *Rule over this*: the same ratio for the build with `--schedules rule`, from the quotient of both medians.
If the rule concerns no operator, this build is the default build.

Goal: the default build takes at most 1.15 times as long as the best of onnxruntime and ncnn in the geometric mean, and
at most 2 times for every network.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from common import at_most, every, run_of, store

if TYPE_CHECKING:
    from common import Tables

NETWORKS: dict[str, dict[str, Any]] = {
    **{
        name: {"source": "local", "name": name}
        for name in (
            *("resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1", "densenet121"),
            *("shufflenet_v2_x1_0", "efficientnet_b0", "convnext_tiny", "vit_b_16", "swin_t", "yolov3-tiny"),
        )
    },
    **{
        name: {"source": "transformers", "name": name, "sequence_length": 128}
        for name in ("bert", "gpt2", "t5-encoder")
    },
    "segformer": {"source": "transformers", "name": "segformer"},
    **{
        name: {"source": "file", "name": f"peer_networks_common:{name}"}
        for name in ("inception_v3", "unet", "dcgan", "whisper_encoder")
    },
}
"""Requests by name; those of the source ``file`` are in ``peer_networks_common.py``."""
THREADS = (1, 2)
PEERS = ("onnxruntime", "torch", "ncnn", "openvino")
_RIVALS = ("onnxruntime", "ncnn")
_RULE = "rule"
_SECONDS = 8.0
"""Of rounds, at each thread count."""
_LAYERS = 5
"""Told of each network: those that lose most."""


def measure(name: str) -> dict[str, Any]:
    """What `compare_with_peers` finds of a network, at every thread count that this machine has cores for."""
    from op_profiler.building.request import BuildRequest
    from op_profiler.comparison.peers.measuring import compare_with_peers
    from op_profiler.comparison.peers.request import PeersRequest
    from op_profiler.cores import usable_cores
    from op_profiler.frontends.frontend import ModelRequest

    os.chdir(Path(__file__).parent)  # where functions that make networks are looked for
    threads = tuple(count for count in THREADS if count <= usable_cores())
    build = BuildRequest(model=ModelRequest(**NETWORKS[name]), threads=threads)
    request = PeersRequest(build=build, against=PEERS, seconds=_SECONDS)
    return compare_with_peers(request, lambda _: None, advise=False).to_json()


def runtime_rows(name: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """A row a runtime and thread count; what was not measured has its reason."""
    rows = []
    for at in found["at"]:
        default_us = at["runtimes"][0]["median_us"]
        by_rule = next((one["ratio"] for one in at["runtimes"] if one["name"] == _RULE), 1.0)
        for one in at["runtimes"][1:]:
            told = one["median_us"] is not None
            rows.append(
                {
                    "network": name,
                    "threads": at["threads"],
                    "runtime": f"{one['name']} {one['version']}".strip(),
                    "default_us": round(default_us, 1),
                    "us": round(one["median_us"], 1) if told else None,
                    "default_over_this": round(one["ratio"], 3) if told else None,
                    "rule_over_this": round(one["ratio"] / by_rule, 3) if told else None,
                    "low": round(one["ratio_low"], 3) if told else None,
                    "high": round(one["ratio_high"], 3) if told else None,
                    "same_outputs": one["agree"],
                    "background_load": at["foreign_load"],
                    "not_measured": one["problem"],
                }
            )
    return rows


def layer_rows(name: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """The layers that lose most, at each thread count."""
    return [
        {
            "network": name,
            "threads": at["threads"],
            "layer": layer["layer"],
            "lost_us": round(layer["lost_us"], 1),
            "ours_us": round(layer["ours_us"], 1),
            "best": at["best"],
            "best_us": round(layer["peers_us"][at["best"]], 1),
        }
        for at in found["at"]
        for layer in at["layers"][:_LAYERS]
        if layer["lost_us"] is not None
    ]


def slower_by_network(
    rows: Any, rivals: tuple[str, ...] = _RIVALS, column: str = "default_over_this"
) -> dict[tuple[str, int], float]:
    """By network and thread count, how many times as long a build takes as the best of the rivals.

    Args:
        column: of the build, ``default_over_this`` or ``rule_over_this``.
    """
    best: dict[tuple[str, int], float] = {}
    for row in rows:
        if row["runtime"].split()[0] in rivals and row["same_outputs"]:
            key = (row["network"], row["threads"])
            best[key] = max(best.get(key, 0.0), row[column])
    return best


def summary_row(runtimes: Any, threads: int, rivals: tuple[str, ...]) -> dict[str, Any]:
    """Both builds beside the best of some runtimes, over all networks; empty where none of them was measured."""
    default, by_rule = (
        {
            name: ratio
            for (name, count), ratio in slower_by_network(runtimes, rivals, column).items()
            if count == threads
        }
        for column in ("default_over_this", "rule_over_this")
    )
    if not default:
        return {}
    worst, worst_by_rule = max(default, key=default.__getitem__), max(by_rule, key=by_rule.__getitem__)
    return {
        "threads": threads,
        "against": " or ".join(rivals),
        "networks": len(default),
        "default_over_this": round(geometric_mean(list(default.values())), 2),
        "worst": round(default[worst], 2),
        "worst_network": worst,
        "rule_over_this": round(geometric_mean(list(by_rule.values())), 2),
        "worst_by_rule": round(by_rule[worst_by_rule], 2),
        "worst_network_by_rule": worst_by_rule,
    }


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if there is no number of a network."""
    rows = tables.get("runtimes", ())
    slower = slower_by_network(rows)
    networks = {(row["network"], row["threads"]) for row in rows}
    mean = round(geometric_mean(list(slower.values())), 3) if slower else None
    return every([at_most(mean, 1.15), *(at_most(slower.get(one), 2.0) for one in networks)])


def main() -> None:
    run = run_of(__file__, __doc__, measure, tuple(NETWORKS))
    runtimes: list[dict[str, Any]] = []
    layers: list[dict[str, Any]] = []
    measured = set()
    for name, found in run.found:
        runtimes += runtime_rows(name, found)
        layers += layer_rows(name, found)
        measured.add(name)
        for row in runtimes:
            if row["network"] == name:
                why = f"  {row['not_measured']}" if row["not_measured"] else ""
                print(
                    f"{name:20}{row['threads']:3}  {row['runtime']:24}{row['default_over_this'] or '-':>8}{why}",
                    flush=True,
                )
    summary = [
        row
        for threads in sorted({row["threads"] for row in runtimes})
        for rivals in (_RIVALS, *((name,) for name in ("tuned", *PEERS)))
        if (row := summary_row(runtimes, threads, rivals))
    ]
    for row in summary:
        print(row)
    goals = [row for row in summary if row["against"] == " or ".join(_RIVALS)]
    headline = "; ".join(
        f"{row['threads']} thread{'s' * (row['threads'] != 1)}: the default build takes "
        f"{row['default_over_this']} times as long as the best of "
        f"{' and '.join(_RIVALS)}, {row['worst']} at worst ({row['worst_network']}); with --schedules rule "
        f"{row['rule_over_this']} times, {row['worst_by_rule']} at worst ({row['worst_network_by_rule']})"
        for row in goals
    )
    if missing := sorted(NETWORKS.keys() - measured):
        headline += f"; not measured: {', '.join(missing)}"
    store(__file__, headline, {"summary": summary, "runtimes": runtimes, "layers": layers}, whole=run.whole)


if __name__ == "__main__":
    main()
