"""`ExplainRequest`: the options of ``op-profiler explain``, checked without heavy imports."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated

from op_profiler.building.request import BuildRequest
from op_profiler.dataset import DEFAULT_DB, dataset_or_default
from op_profiler.errors import UsageError
from op_profiler.frontends import FRONTENDS, source_and_name
from op_profiler.option_values import or_nothing, parse_names, parse_trials_from
from op_profiler.options import MEASURING, OUTPUT, Option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExplainRequest:
    """Options of an explanation.

    Attributes:
        build: model and schedules; operators are explained at the largest of its thread counts.
        operator: workload key of the only operator to explain; None: the operators that take most of the time.
        db: SQLAlchemy URL of the dataset; None: no dataset is read or written.
    """

    build: BuildRequest
    operator: str | None = None
    against: Annotated[
        tuple[str, ...],
        Option(
            "Also measure the whole model in other runtimes, in alternation and with the same thread counts: {peers}. "
            "Separate several by commas.",
            MEASURING,
            parse=or_nothing(parse_names),
            shown="",
        ),
    ] = ()
    top: Annotated[int, Option("Explain at most this many operators, those that take most of the time.", OUTPUT)] = 10
    shipped: Annotated[
        bool,
        Option(
            "Searches from which the gain of tuning is predicted, in addition to those in --db: shipped (included with "
            "the package) or none.",
            MEASURING,
            name="trials_from",
            parse=parse_trials_from,
            shown="shipped",
        ),
    ] = True
    db: Annotated[
        str | None,
        Option(
            "Dataset (SQLAlchemy URL) to look up the key of an operator, schedule trials and times of the vendor's "
            "kernels. If it contains the model, the explanation is stored there for op-profiler report. Default: "
            f"{DEFAULT_DB} if it exists.",
            OUTPUT,
        ),
    ] = None

    def check(self) -> None:
        """Reject invalid options.

        Raises:
            UsageError: an option is out of range, or the target is not this machine's processor.
        """
        if self.top < 1:
            raise UsageError(f"--top {self.top} is out of range; give 1 or more")
        if not self.build.on_host:
            raise UsageError("explain reads the machine code of this machine's processor; give --target llvm")
        self.build.check()

    def of(self, subject: str) -> ExplainRequest:
        """Return a copy of this request for the model or operator `subject`.

        Args:
            subject: name of a model, or the key (16 hex digits) of an operator in the dataset.

        Raises:
            UsageError: no model in the dataset calls the operator, or the model that calls it cannot be explained.
            OpProfilerError: there is no such model, or no such dataset.
        """
        db, operator = dataset_or_default(self.db), subject if re.fullmatch(r"[0-9a-f]{16}", subject) else None
        build = self.build
        if operator is not None:
            from op_profiler.analysis.explain.keeping import build_of

            asked = build_of(operator, db or DEFAULT_DB)
            same = ("target", "schedules", "threads", "check_outputs")
            build = dataclasses.replace(asked, place=None, **{name: getattr(build, name) for name in same})
        else:
            source, name = source_and_name(subject, build.model.source)
            build = dataclasses.replace(build, model=dataclasses.replace(build.model, source=source, name=name))
        FRONTENDS.get(build.model.source).check(build.model)
        return dataclasses.replace(self, build=build, operator=operator, db=db)
