"""The order of what an explanation tells: what matters to the whole model first, and last what is hardly known."""

from __future__ import annotations

from typing import Any

import pytest

from op_profiler.analysis.explain import losses
from op_profiler.analysis.explain.explanation import Advice, Loss, ModelExplanation, OperatorExplanation
from op_profiler.analysis.explain.verdict import advice_by_command, verdict_of
from op_profiler.analysis.explain.words import explained
from op_profiler.report.explanation import show

from .test_losses import FINE, MODEL, evidence

_TUNE, _FUSE = "op-profiler collect net --iftune true", "op-profiler collect net --pipeline mine:fuse"


def operator(key: str, us: float, advice: Advice | None) -> OperatorExplanation:
    times: dict[str, Any] = {"time_us": us, "hot_us": us, "cold_us": None, "one_thread_us": us, "unexplained_us": 0.0}
    of_model: dict[str, Any] = {"calls": 2, "threads": 1, "model_share": us / 1000, "traffic_shares": {}}
    unknown: dict[str, Any] = {"compute_share": None, "code": None, "sureness": None}
    named: dict[str, Any] = {"key": key, "name": key, "title": f"op {key}", "anchor": "nn.dense"}
    about: dict[str, Any] = {"losses": [], "sentence": f"op {key} takes {us} us.", "advice": advice}
    return OperatorExplanation(**named, **of_model, **times, **unknown, **about)


def advice(action: str, command: str, gain: float | None) -> Advice:
    ends = {} if gain is None else {"gain_us": gain, "gain_low_us": gain / 2, "gain_high_us": gain * 2}
    return Advice(action=action, command=command, text="", **ends)


OPERATORS = [
    operator("a", 300.0, advice("rewriting", "", None)),
    operator("b", 200.0, advice("tuning", _TUNE, 10.0)),
    operator("c", 150.0, advice("fusing", _FUSE, 25.0)),
    operator("d", 100.0, advice("tuning", _TUNE, 30.0)),
    operator("e", 50.0, None),
]


def test_advice_is_grouped_by_command_the_largest_gain_first_and_last_what_has_none() -> None:
    found = advice_by_command(OPERATORS)
    assert [(one.command, one.operators, one.gain_us) for one in found] == [
        (_TUNE, ["d", "b"], 80.0),  # of two calls each
        (_FUSE, ["c"], 50.0),
        ("", ["a"], None),
    ]


def test_the_total_and_the_verdict_are_printed_first_then_advice_by_command_then_operators(
    capsys: pytest.CaptureFixture[str],
) -> None:
    advised = advice_by_command(OPERATORS)
    show(
        ModelExplanation(
            model="net",
            processor="any",
            threads=1,
            whole_model_us=1000.0,
            verdict=verdict_of(advised, 1000.0),
            advice=advised,
            operators=OPERATORS,
            notes=["a note"],
        ),
        tables=True,
    )
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0].startswith("net on any, 1 thread: 1") and lines[1].startswith("tuning 2 operators: 1.0 ms to ")
    starts = ("- tuning 2 operators", f"    {_TUNE}", "- fusing 1 operator", f"    {_FUSE}", "- rewriting 1 operator")
    for line, start in zip(lines[2:], starts):
        assert line.startswith(start)
    assert lines[2].endswith("op d (d), op b (b)")
    rows = [at for at, line in enumerate(lines) if line.startswith("│")]
    assert rows[0] > 2 + len(starts) and [lines[at].split("│")[2].strip() for at in rows] == [
        f"op {key}" for key in "abcde"
    ]
    assert lines[rows[-1] + 1 :][-6:] == ["note: a note", *(one.sentence for one in OPERATORS)]


def test_a_loss_that_may_be_nearly_nothing_is_behind_a_smaller_one_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def loss(cause: Any, us: float, low: float, high: float) -> Loss:
        return Loss(cause=cause, lost_us=us, low_us=low, high_us=high, basis="computed", because="it is so")

    vague, known = loss("memory", 900.0, 52.0, 5716.0), loss("thread overhead", 600.0, 500.0, 700.0)
    for module in (losses.instructions, losses.memory, losses.threads, losses.schedule):
        monkeypatch.setattr(module, "losses", lambda *_: [])
    monkeypatch.setattr(losses.memory, "losses", lambda _: [vague])
    slow = evidence({state: 40 * us for state, us in FINE.items()})
    alone = explained(slow, 10_000.0, MODEL)
    assert "may lose up to" in alone.sentence and alone.losses[0].vague
    monkeypatch.setattr(losses.threads, "losses", lambda _: [known])
    found = explained(slow, 10_000.0, MODEL)
    assert [one.cause for one in found.losses] == ["thread overhead", "memory"]
    assert "It loses most to handing work to threads: 600.0 us" in found.sentence
