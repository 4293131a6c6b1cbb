"""``op-profiler check`` predicts, measures, and keeps the tally that ``evaluate --live`` shows."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from ..command_line import op_profiler


def test_a_check_is_compared_counted_and_named_by_predict(tmp_path: Path) -> None:
    environment = {"XDG_DATA_HOME": str(tmp_path / "data")}
    nothing = op_profiler("evaluate", "--live", folder=tmp_path, environment=environment)
    assert nothing.returncode == 0 and "op-profiler check MODEL" in nothing.stdout
    predicted = op_profiler("predict", "mlp", folder=tmp_path, environment=environment)
    (last,) = predicted.stdout.splitlines()[-1:]
    command = last.partition("check it on this machine: ")[2]
    assert command == "op-profiler check local:mlp --threads 1"
    done = op_profiler(*shlex.split(command)[1:], "--json", folder=tmp_path, environment=environment)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    assert found["held"] == (done.returncode == 0)
    assert {one["verdict"] for one in found["operators"]} <= {"held", "did not hold", "disturbed"}
    assert len(found["operators"]) + len(found["not_compared"]) >= 2
    for one in [found["network"], *found["operators"]]:
        inside = one["low_us"] <= one["measured_us"] and (
            one["high_us"] is None or one["measured_us"] <= one["high_us"]
        )
        assert one["verdict"] == "disturbed" or (one["verdict"] == "held") == inside
    live = op_profiler("evaluate", "--live", "--json", folder=tmp_path, environment=environment)
    counted = {one["kind"]: one["checked"] + one["disturbed"] for one in json.loads(live.stdout)}
    assert counted == {"operator": len(found["operators"]), "network": 1}


def test_what_cannot_be_checked_is_refused(tmp_path: Path) -> None:
    two = op_profiler("check", "mlp", "--threads", "1,2", folder=tmp_path)
    assert two.returncode == 2 and "give one to --threads" in two.stderr
    no_model = op_profiler("check", folder=tmp_path)
    assert no_model.returncode == 2 and "there is no model in the command" in no_model.stderr
    none = op_profiler("check", "mlp", "--seconds", "0", folder=tmp_path)
    assert none.returncode == 2
