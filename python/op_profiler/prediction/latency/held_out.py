"""Errors of predictors on held-out operators and networks."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence, Set

import numpy as np

from op_profiler.errors import DatasetError, UnknownNameError
from op_profiler.prediction.latency.examples import Examples
from op_profiler.prediction.latency.families import families_in
from op_profiler.prediction.latency.fit import fit, measured_of
from op_profiler.prediction.latency.network import Network, NetworkPrediction, predict_network
from op_profiler.prediction.latency.operator_predictor import OperatorPredictor, query_of
from op_profiler.prediction.latency.steady_times import at_reference_state
from op_profiler.prediction.library.library_predictor import LibraryPrediction
from op_profiler.prediction.library.scoring import Score, score

HEAVY_US = 20.0
"""Shorter operators of held-out models are not scored, because their time is mostly call overhead."""
_GROUPS = 7
"""Number of groups into which families are divided: each group is held out in one fit, which takes minutes."""
_FEWEST_CONVOLUTIONS = 50


@dataclasses.dataclass(frozen=True)
class HeldOutNetwork:
    """Prediction of a held-out network at one thread count.

    Attributes:
        measured_us: measured time of the whole model, microseconds.
        operators_us: measured latency of each operator of `prediction.network`, microseconds.
    """

    measured_us: float
    operators_us: np.ndarray
    prediction: NetworkPrediction


def _batch(columns: dict[str, np.ndarray]) -> np.ndarray:
    batches = np.unique(columns["batch"][columns["conv"]])
    return columns["batch"] == batches[-2 if len(batches) > 2 else -1]


_SPLITS: dict[str, Callable[[dict[str, np.ndarray]], np.ndarray]] = {
    "h": lambda columns: np.isin(columns["width"], np.unique(columns["width"][columns["conv"]])[1::2]),
    "oc": lambda columns: np.isin(columns["columns"], np.unique(columns["columns"][columns["conv"]])[2::5]),
    "ratio": lambda columns: np.isin(np.round(columns["ratio"], 2), (0.5, 2.0)),
    "batch": _batch,
    "largest": lambda columns: columns["width"] >= np.quantile(columns["width"][columns["conv"]], 0.95),
}
SPLITS = ("random", *_SPLITS, "model")
DESCRIPTIONS = {
    "random": "a random fifth of the operators",
    "h": "convolutions of every other input width",
    "oc": "convolutions of every fifth number of output channels",
    "ratio": "convolutions with ratios of input to output channels 0.5 and 2",
    "batch": "convolutions of one batch size",
    "largest": "convolutions of the largest twentieth by width",
    "model": f"families of networks, in {_GROUPS} groups: the whole network",
    "model operators": f"the same: its operators above {HEAVY_US:.0f} us",
}


def fits_of(examples: Examples, split: str, seed: int = 0) -> int:
    """Return the number of fits in one call of `evaluate`; raise the same errors as `evaluate` for an invalid split."""
    if split == "model":
        return len(family_groups(at_reference_state(examples)))
    held_out(examples, split, seed)
    return 1


def evaluate(
    examples: Examples, split: str, predictor: str, seed: int = 0, announce: Callable[[str], None] = lambda text: None
) -> list[Score]:
    """Fit to the training part of a split, predict the held-out part, and return the scores: two for the split
    ``model``, one for any other split.

    Args:
        announce: called before each fit with a text that names the split, the predictor and the part.

    Raises:
        UnknownNameError: there is no such split or predictor.
        DatasetError: there is nothing to hold out.
    """
    started = time.perf_counter()
    examples = at_reference_state(examples)
    if split == "model":
        found = list(held_out_networks(examples, predictor, seed, announce))
        seconds = time.perf_counter() - started
        return [_score_networks(found, predictor, seconds), _score_operators(found, predictor, seconds)]
    announce(f"{split}: {predictor}")
    held = held_out(examples, split, seed)
    train = ~np.isin(examples.workload, np.unique(examples.workload[held]))
    fitted = fit(examples.where(train), choice=predictor, seed=seed)
    test = examples.where(held)
    answer = fitted.predict(query_of(test))
    predicted = LibraryPrediction(answer.latency_us, answer.low_us, answer.high_us)
    seconds = time.perf_counter() - started
    return [score(test.latency_us, predicted, split, predictor, int(train.sum()), seconds)]


def held_out(examples: Examples, split: str, seed: int = 0) -> np.ndarray:
    """Return the mask of the entries that a split holds out; all splits but ``random`` hold out convolutions only.

    Raises:
        UnknownNameError: there is no such split.
        DatasetError: there are too few convolutions, or the split would hold out none or all of the entries.
    """
    if split == "random":
        fold = np.random.default_rng(seed).integers(0, 5, len(examples.operators))
        return fold[examples.operator] == 0
    if split not in _SPLITS:
        raise UnknownNameError("split", split, SPLITS)
    columns = _columns(examples)
    if columns["conv"].sum() < _FEWEST_CONVOLUTIONS:
        raise DatasetError(f"the dataset holds only {int(columns['conv'].sum())} measurements of convolutions")
    held = _SPLITS[split](columns) & columns["conv"]
    if not held.any() or held.all():
        raise DatasetError(f"there is nothing to hold out by {split}: {DESCRIPTIONS[split]}")
    return held


def held_out_networks(
    examples: Examples, predictor: str, seed: int = 0, announce: Callable[[str], None] = lambda text: None
) -> Iterator[HeldOutNetwork]:
    """Yield every network at every thread count, predicted by a predictor that was fitted without the network's family.

    See `families_in` for families. Operators of the network that were also measured in other families are looked up, as
    for a user, but no model is fitted to them.

    Raises:
        DatasetError: there are fewer than two families.
    """
    examples = at_reference_state(examples)
    groups = family_groups(examples)
    for number, held in enumerate(groups, 1):
        announce(f"model: {predictor}, families {number} of {len(groups)}")
        fitted = looking_up(fitted_without(examples, held, predictor, seed), examples.where(~held))
        yield from predicted_networks(fitted, examples.where(held))


def family_groups(examples: Examples, others: Sequence[Examples] = ()) -> list[np.ndarray]:
    """Return masks of the entries that are held out together: a few families of networks with their sampled operators.

    Every family with a network is in one of the masks.

    Args:
        others: measurements of other devices; a network among them may connect two families, which are then one family.

    Raises:
        DatasetError: there are fewer than two families.
    """
    family = families_in([examples, *others])
    families = np.array([family[name] for name in examples.models])
    wanted = np.unique(families[np.unique(examples.model[~examples.sampled[examples.model]])])
    if len(wanted) < 2:
        raise DatasetError(
            "leaving families of networks out needs two different ones; collect some with op-profiler collect"
        )
    return [np.isin(families[examples.model], wanted[n::_GROUPS]) for n in range(min(_GROUPS, len(wanted)))]


def fitted_without(
    examples: Examples, held: np.ndarray, predictor: str, seed: int = 0, others: Sequence[Examples] = ()
) -> OperatorPredictor:
    """Return a predictor that was fitted neither to held-out entries nor to other measurements of their operators.

    Args:
        held: mask of the held-out entries.
        others: measurements of other devices, as for `fit`; held-out families and operators are removed from them too.
    """
    workloads = {examples.operators[at].workload for at in np.unique(examples.operator[held])}
    family = families_in([examples, *others])
    held_families = {family[examples.models[at]] for at in np.unique(examples.model[held])}
    gone = {name for name, of in family.items() if of in held_families}
    remaining = [_without(one, workloads, gone) for one in (examples, *others)]
    return fit(remaining[0], choice=predictor, seed=seed, others=remaining[1:])


def _without(examples: Examples, workloads: Set[str], names: Set[str]) -> Examples:
    """Return the entries that are neither of these operators nor of these models."""
    operators = np.array([operator.workload in workloads for operator in examples.operators], dtype=bool)
    models = np.array([name in names for name in examples.models], dtype=bool)
    return examples.where(~operators[examples.operator] & ~models[examples.model])


def looking_up(fitted: OperatorPredictor, examples: Examples) -> OperatorPredictor:
    """Return a copy of the predictor `fitted` that looks up the times of `examples` instead of the times it was fitted
    to."""
    return dataclasses.replace(fitted, measured=measured_of(examples, query_of(examples)))


def predicted_networks(fitted: OperatorPredictor, examples: Examples) -> Iterator[HeldOutNetwork]:
    """Yield the predictions of all networks in the measurements, at each thread count of the predictor.

    Networks without a time of the whole model at a thread count are skipped.
    """
    networks = np.flatnonzero(~examples.sampled)
    for model in networks[np.isin(networks, examples.model)]:
        mine = examples.model == model
        for threads in np.unique(examples.threads[mine]):
            rows = np.flatnonzero(mine & (examples.threads == threads))
            operators = [examples.operators[i] for i in examples.operator[rows]]
            loops = None if examples.loops is None else examples.loops[examples.operator[rows]]
            network = Network.of_calls(examples.models[model], operators, examples.occurrences[rows].tolist(), loops)
            whole = float(examples.whole_model_us[rows[0]])
            if np.isfinite(whole) and int(threads) in fitted.thread_counts:
                yield HeldOutNetwork(
                    whole, examples.latency_us[rows], predict_network(fitted, network, threads=int(threads))
                )


def _score_networks(found: list[HeldOutNetwork], predictor: str, seconds: float) -> Score:
    measured = np.array([one.measured_us for one in found])
    totals = np.array([(p.total_us, p.low_us, p.high_us) for p in (one.prediction for one in found)])
    return score(measured, LibraryPrediction(*totals.T), "model", predictor, 0, seconds)


def _score_operators(found: list[HeldOutNetwork], predictor: str, seconds: float) -> Score:
    def together(name: str) -> np.ndarray:
        return np.concatenate([getattr(one.prediction.operators, name) for one in found])

    measured = np.concatenate([one.operators_us for one in found])
    heavy = measured > HEAVY_US
    predicted = LibraryPrediction(*(together(name)[heavy] for name in ("latency_us", "low_us", "high_us")))
    return score(measured[heavy], predicted, "model operators", predictor, 0, seconds)


def _columns(examples: Examples) -> dict[str, np.ndarray]:
    """Return sizes of convolutions by name, one per entry; `conv` is the mask of entries that are convolutions."""
    query = query_of(examples)
    sizes = {name: np.round(2.0 ** query.column(name)) for name in ("width", "columns", "batch", "reduction", "window")}
    ratio = sizes["reduction"] / np.maximum(sizes["window"], 1) / np.maximum(sizes["columns"], 1)
    return {**sizes, "ratio": ratio, "conv": query.column("is_conv2d") > 0}
