"""`SampleRequest` and `CalibrateRequest`: the options of ``sample`` and ``calibrate``; this module imports quickly."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

from op_profiler.collection.request import CollectRequest
from op_profiler.collection.sampling import grid
from op_profiler.collection.sampling.batch import Batch
from op_profiler.collection.sampling.draw import Draw
from op_profiler.errors import UsageError, check_known
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.sample import CACHED
from op_profiler.option_values import or_nothing, parse_counts, parse_duration, parse_names
from op_profiler.options import Only, Option

_WHAT, _HOW_MUCH = "What", "How much"
USUAL_ROUNDS = 21
SampledRequest = Annotated[
    CollectRequest,
    Only("target", "compiler", "threads", "remeasure", "host", "port", "device_key", "db", schedules="none"),
]
"""The options of `CollectRequest` that ``op-profiler sample`` offers."""
CalibratedRequest = Annotated[
    CollectRequest, Only("target", "threads", "remeasure", "host", "port", "device_key", "db")
]
"""The options of `CollectRequest` that ``op-profiler calibrate`` offers."""


def sampling(request: CollectRequest, rounds: int) -> CollectRequest:
    """Return a copy of a request that measures batches of sampled operators, each in at most `rounds` rounds."""
    measuring = dataclasses.replace(request.measuring, rounds=rounds, energy="none")
    return dataclasses.replace(request.of(model=ModelRequest(source="sample")), measuring=measuring)


def check_amount(count: int | None, rounds: int) -> None:
    """Reject a request that measures no operator, or too few rounds for an interval.

    Raises:
        UsageError: a number is too small; the message contains the allowed values.
    """
    if rounds < 3:
        raise UsageError(f"--rounds {rounds} is out of range; give 3 or more")
    if count is not None and count < 1:
        raise UsageError(f"--count {count} is out of range; give 1 or more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """Options of sampling: which operators are measured, and how many."""

    config: Annotated[
        Path | None, Option("File with a grid of convolutions to measure, in TinyNAS's format.", _WHAT)
    ] = None
    skip_rule: Annotated[
        tuple[str, ...],
        Option(
            "Rules of the grid to ignore, separated by commas; 'list' prints the rules.",
            _WHAT,
            parse=or_nothing(parse_names),
            shown="no_stem",
        ),
    ] = ("no_stem",)
    kinds: Annotated[
        tuple[str, ...] | None,
        Option(
            "Kinds of operators to draw, separated by commas, or 'all'; 'list' prints the kinds. Default: the usual "
            "kinds.",
            _WHAT,
            parse=parse_names,
        ),
    ] = None
    models: Annotated[
        tuple[str, ...] | None,
        Option("Measure the operators of these models (source:name), separated by commas.", _WHAT, parse=parse_names),
    ] = None
    batches: Annotated[tuple[int, ...], Option("Batch sizes for --models.", _WHAT, parse=parse_counts, shown="1")] = (
        1,
    )
    resolutions: Annotated[
        tuple[int, ...],
        Option(
            "Image sizes for --models, such as 160,224. Default: those of each model.",
            _WHAT,
            parse=or_nothing(parse_counts),
            shown="",
        ),
    ] = ()
    sequence_lengths: Annotated[
        tuple[int, ...],
        Option(
            "Tokens per sequence for --models. Default: those of each model.",
            _WHAT,
            parse=or_nothing(parse_counts),
            shown="",
        ),
    ] = ()
    adaptive: Annotated[bool, Option("Draw the operators whose predictions are least certain.", _WHAT)] = False
    cached: Annotated[
        bool,
        Option(
            "Draw small operators in small batches, so that their weights stay in the cache, like those of a recurrent "
            "cell.",
            _WHAT,
        ),
    ] = False
    count: Annotated[
        int | None, Option("Number of operators to measure in total; the last batch is always completed.", _HOW_MUCH)
    ] = None
    budget_seconds: Annotated[
        float | None,
        Option("Time to spend, such as 90s, 10m or 2h.", _HOW_MUCH, flags=("--budget",), parse=parse_duration),
    ] = None
    rounds: Annotated[int, Option("Largest number of rounds for each operator.", _HOW_MUCH)] = USUAL_ROUNDS
    seed: Annotated[int, Option("Seed of the random draws.", _HOW_MUCH)] = 0

    def check(self) -> None:
        """Check the options.

        Raises:
            UsageError: options exclude each other, a required option is missing, or a number is out of range.
        """
        chosen = [self.config is not None, self.models is not None, self.adaptive]
        if sum(chosen) > 1 or (self.kinds is not None and any(chosen[:2])):
            raise UsageError("give one of --config, --models, --adaptive; --kinds goes with --adaptive or alone")
        if self.cached and any(chosen):
            raise UsageError("--cached draws random operators; leave out --config, --models and --adaptive")
        if self.models is None and (self.resolutions or self.sequence_lengths or self.batches != (1,)):
            raise UsageError("--batches, --resolutions and --sequence-lengths go with --models")
        if self.count is None and self.budget_seconds is None and self.config is None and self.models is None:
            raise UsageError("say how much to measure: --count 500 or --budget 10m")
        check_amount(self.count, self.rounds)

    def drawn(self, request: CollectRequest, note: Callable[[str], None]) -> Iterator[Batch]:
        """Return the batches to measure: those of `draw`, or with ``--adaptive`` the least certain operators.

        Args:
            note: called with the reason if ``--adaptive`` cannot use the measurements in the dataset.
        """
        if not self.adaptive:
            return self.draw().batches()
        from op_profiler.collection.sampling.adaptive import adaptive_batches

        return adaptive_batches(request, self.kinds or (), self.seed, note)

    def draw(self) -> Draw:
        """Return the description of the operators to measure.

        Raises:
            UsageError: a rule does not exist, the grid cannot be read, or no model takes the requested lengths or
                resolutions.
            OpProfilerError: a model does not exist.
        """
        if self.config is not None:
            rules = self._rules()
            return Draw(label=self.config.stem, seed=self.seed, grid=grid.read_grid(self.config), rules=rules)
        if self.models is not None:
            return Draw(label="models", models=tuple(self._variants(self.models)))
        kinds = self.kinds or ()
        return Draw(
            label=f"draw{self.seed}{CACHED if self.cached else ''}", seed=self.seed, kinds=kinds, cached=self.cached
        )

    def _rules(self) -> tuple[str, ...]:
        for name in self.skip_rule:
            check_known("rule", name, grid.RULES, "--skip-rule list shows what each asks for.")
        return tuple(name for name in grid.RULES if name not in self.skip_rule)

    def _variants(self, names: tuple[str, ...]) -> list[ModelRequest]:
        """Return a request for every combination of a model, a batch size, and a sequence length or image size."""
        found = []
        for text in names:
            source, colon, name = text.partition(":")
            if not colon or not name:
                raise UsageError(f"--models takes source:name, such as local:resnet-18; not {text!r}")
            frontend = FRONTENDS.get(source)
            found += self._variants_of(ModelRequest(source=source, name=name), frontend.takes_sequence_length(name))
            frontend.check(found[-1])
        if self.sequence_lengths and not any(one.sequence_length for one in found):
            given = _listed(self.sequence_lengths)
            raise UsageError(f"--sequence-lengths {given}: none of the models has a sequence; leave it out")
        if self.resolutions and not any(one.input_shapes for one in found):
            given = _listed(self.resolutions)
            raise UsageError(f"--resolutions {given}: none of the models takes images; leave it out")
        return found

    def _variants_of(self, model: ModelRequest, of_text: bool) -> list[ModelRequest]:
        images = self.resolutions if not of_text else ()
        tokens: tuple[int | None, ...] = (self.sequence_lengths if of_text else ()) or (None,)
        return [
            dataclasses.replace(
                model,
                batch_size=batch,
                input_shapes=() if size is None else ((batch, 3, size, size),),
                sequence_length=length,
            )
            for batch in self.batches
            for size in images or (None,)
            for length in tokens
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrateRequest:
    """Options of a calibration: how much it measures."""

    budget_seconds: Annotated[
        float,
        Option(
            "Time to spend, such as 90s, 3m or 1h.", _HOW_MUCH, flags=("--budget",), parse=parse_duration, shown="3m"
        ),
    ] = 180.0
    rounds: Annotated[int, Option("Largest number of rounds for each operator.", _HOW_MUCH)] = 7
    seed: Annotated[
        int,
        Option(
            "Seed of the random operators: small operators, and those that are measured if time is left after the "
            "selected operators.",
            _HOW_MUCH,
            least=0,
        ),
    ] = 0

    def of(self, request: CollectRequest) -> CollectRequest:
        """Return a copy of a request that measures batches of a calibration, with the default schedules.

        Raises:
            UsageError: a number is out of range.
        """
        check_amount(None, self.rounds)
        return sampling(request.of(schedules="none"), self.rounds)


def _listed(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))
