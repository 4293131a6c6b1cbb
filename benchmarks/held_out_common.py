"""Networks that were held out, as predictors see them, and the tables of their errors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from network_sets_common import TEST, seed_of

if TYPE_CHECKING:
    import numpy as np
    from common import Records

    from op_profiler.prediction.latency.held_out import HeldOutNetwork

NOTHING, LOOK_UPS = "nothing", "look-ups"


@dataclasses.dataclass(frozen=True)
class Scored:
    """A network at one thread count, and what a predictor says of it.

    Attributes:
        of: the set of the network: `DEVELOPMENT` or `TEST`.
        known: `NOTHING` or `LOOK_UPS`.
    """

    processor: str
    of: str
    known: str
    found: HeldOutNetwork

    @property
    def threads(self) -> int:
        """At which it ran."""
        return self.found.prediction.threads

    @property
    def schedules(self) -> str:
        """``rule`` for a network that was compiled by the project's rule, else ``default``."""
        from op_profiler.prediction.latency.scheduled import OperatorByRule

        ruled = any(isinstance(operator, OperatorByRule) for operator in self.found.prediction.network.operators)
        return "rule" if ruled else "default"

    @property
    def error(self) -> float:
        """Signed, relative to the measured time; NaN where an operator has no estimate, and the network no total."""
        return self.found.prediction.total_us / self.found.measured_us - 1

    @property
    def holds(self) -> bool:
        """Whether the measured time is inside the interval."""
        return self.found.prediction.low_us <= self.found.measured_us <= self.found.prediction.high_us


def over_networks(some: Sequence[Scored]) -> dict[str, Any]:
    """Errors of whole networks."""
    import numpy as np

    answered = [one for one in some if math.isfinite(one.error)]
    errors = np.array([one.error for one in answered])
    widths = [np.sqrt(one.found.prediction.high_us / one.found.prediction.low_us) - 1 for one in answered]
    return {
        "mean_error_percent": percent(np.abs(errors).mean()),
        "within_10_percent": percent((np.abs(errors) <= 0.1).mean(), 0),
        "worst_percent": percent(np.abs(errors).max()),
        "bias_percent": percent(errors.mean()),
        "inside_interval_percent": percent(np.mean([one.holds for one in answered]), 0),
        "median_half_width_percent": percent(np.median(widths), 0),
        "networks": len(errors),
        "without_total": len(some) - len(errors),
    }


def over_operators(some: Sequence[Scored]) -> dict[str, Any]:
    """Errors of their operators that take long."""
    import numpy as np

    from op_profiler.prediction.latency.held_out import HEAVY_US

    errors, holds, widths = [], [], []
    for one in some:
        measured, found = one.found.operators_us, one.found.prediction.operators
        heavy = (measured > HEAVY_US) & np.isfinite(found.latency_us)
        errors.append((found.latency_us / measured - 1)[heavy])
        holds.append(((found.low_us <= measured) & (measured <= found.high_us))[heavy])
        widths.append((np.sqrt(found.high_us / found.low_us) - 1)[heavy])
    size = np.abs(np.concatenate(errors))
    return {
        "mean_error_percent": percent(size.mean()),
        "median_error_percent": percent(np.median(size)),
        "within_10_percent": percent((size <= 0.1).mean(), 0),
        "inside_interval_percent": percent(np.concatenate(holds).mean(), 0),
        "median_half_width_percent": percent(np.median(np.concatenate(widths)), 0),
        "operators": len(size),
    }


def by_kind(some: Sequence[Scored]) -> list[dict[str, Any]]:
    """The same by what operators compute: a row a processor and kind, at all thread counts, where nothing is known."""
    import numpy as np

    from op_profiler.prediction.latency.features import KINDS
    from op_profiler.prediction.latency.held_out import HEAVY_US

    rows = []
    for processor in dict.fromkeys(one.processor for one in some):
        mine = [one.found for one in some if one.processor == processor and one.known == NOTHING]
        measured = np.concatenate([one.operators_us for one in mine])
        found = np.concatenate([one.prediction.operators.latency_us for one in mine])
        kinds = np.concatenate([one.prediction.network.query.kinds for one in mine])
        calls = np.concatenate([one.prediction.network.calls for one in mine])
        heavy = (measured > HEAVY_US) & np.isfinite(found)
        spent = (measured * calls)[heavy].sum()
        for at, kind in enumerate(KINDS):
            these = heavy & (kinds == at)
            if these.any():
                size = np.abs(found[these] / measured[these] - 1)
                rows.append(
                    {
                        "processor": processor,
                        "kind": kind,
                        "mean_error_percent": percent(size.mean()),
                        "median_error_percent": percent(np.median(size)),
                        "of_their_time_percent": percent((measured * calls)[these].sum() / spent, 0),
                        "operators": len(size),
                    }
                )
    return rows


def percent(share: np.floating[Any] | float, digits: int = 1) -> float | None:
    """A share in percent; None where it is not known."""
    return round(100 * float(share), digits or None) if math.isfinite(share) else None


def network_rows(some: Sequence[Scored]) -> list[dict[str, Any]]:
    """A row a network and thread count, with both answers."""
    rows: dict[tuple[str, str, str, int], dict[str, Any]] = {}
    for one in some:
        said = one.found.prediction
        key = one.processor, said.network.name, one.schedules, one.threads
        if one.known == NOTHING:
            rows[key] = {
                "processor": one.processor,
                "network": said.network.name,
                "of": one.of,
                "schedules": one.schedules,
                "threads": one.threads,
                "measured_us": round(one.found.measured_us),
                "predicted_us": round(said.total_us) if math.isfinite(said.total_us) else None,
                "error_percent": percent(one.error),
                "interval_holds": one.holds,
            }
        else:
            rows[key]["error_with_look_ups_percent"] = percent(one.error)
    return list(rows.values())


def together(some: Sequence[Scored]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows over networks and over their operators, of each processor, set of networks, kind of schedules, thread count
    and knowledge."""
    names = ("processor", "of", "schedules", "known", "threads")
    kinds: dict[tuple[Any, ...], list[Scored]] = {}
    for one in some:
        kinds.setdefault(tuple(getattr(one, name) for name in names), []).append(one)
    networks, operators = [], []
    for kind, mine in sorted(kinds.items()):
        head = dict(zip(names, kind))
        networks.append(head | over_networks(mine))
        operators.append(head | over_operators(mine))
    return networks, operators


def by_origin(some: Sequence[Scored]) -> list[dict[str, Any]]:
    """Errors of whole networks of zoos and of drawn ones apart, at all thread counts, where nothing is known."""
    rows: dict[tuple[str, str, str], list[Scored]] = {}
    for one in some:
        if one.known == NOTHING:
            origin = "zoos" if seed_of(one.found.prediction.network.name) is None else "drawn"
            rows.setdefault((one.processor, one.of, origin), []).append(one)
    return [dict(zip(("processor", "of", "origin"), key)) | over_networks(mine) for key, mine in sorted(rows.items())]


def headline_of(networks: Records, operators: Records) -> str:
    """Return the errors of each processor and kind of schedules, at all thread counts, where nothing is known: of the
    test set where there is one.

    Args:
        networks, operators: rows of `together`.
    """
    parts = []
    for processor, schedules in dict.fromkeys((row["processor"], row["schedules"]) for row in networks):

        def rows(of_all: Records, *, head: tuple[str, str] = (processor, schedules)) -> Records:
            plain = [row for row in of_all if (row["processor"], row["schedules"]) == head and row["known"] == NOTHING]
            return [row for row in plain if row["of"] == TEST] or plain

        whole, by_operator = rows(networks), rows(operators)
        by_rule = " with --schedules rule" if schedules == "rule" else ""
        error, near = (mean(whole, column, "networks") for column in ("mean_error_percent", "within_10_percent"))
        parts.append(
            f"{processor}, {whole[0]['of']} set{by_rule}: mean error {error:.1f} % over "
            f"{sum(row['networks'] for row in whole)} predictions of networks, largest "
            f"{max(row['worst_percent'] for row in whole)} %, {near:.0f} % of them within 10 %, mean error of "
            f"operators above 20 us {mean(by_operator, 'mean_error_percent', 'operators'):.1f} %"
        )
    return "; ".join(parts)


def mean(rows: Records, column: str, count: str) -> float:
    """Return the mean of a column over rows that stand for so many cases each."""
    return float(sum(row[column] * row[count] for row in rows) / sum(row[count] for row in rows))


def line_of(one: Scored) -> str:
    """A network in one line, as it is printed."""
    said = one.found.prediction
    return (
        f"{said.network.name:28} {one.of:11} {one.schedules:7} known: {one.known:8} {one.threads} threads "
        f"{one.found.measured_us:9.0f} us {100 * one.error:+6.1f} %{'' if one.holds else '  OUTSIDE'}"
    )
