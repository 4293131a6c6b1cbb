"""Formats for viewers: traces, and node data of Model Explorer."""

from __future__ import annotations

import collections
import itertools
import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from op_profiler.dataset import Dataset, export_table, flat_rows
from op_profiler.errors import UsageError
from op_profiler.operators.titles import title_of

from ...command_line import op_profiler


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """mlp, measured here at two thread counts."""
    url = f"sqlite:///{tmp_path_factory.mktemp('runs')}/results.db"
    done = op_profiler("collect", "mlp", "--threads", "1,2", "--quiet", "--db", url)
    assert done.returncode == 0, done.stderr
    return url


def exported(url: str, path: Path, **options: Any) -> tuple[Any, int]:
    with Dataset.open(url, read_only=True) as dataset:
        done = export_table(dataset, path, **options)
    return json.loads(path.read_text()), done.rows


def test_a_trace_has_every_call_inside_its_layers(url: str, tmp_path: Path) -> None:
    trace, rows = exported(url, tmp_path / "trace.json", format="chrome_trace")
    with Dataset.open(url, read_only=True) as dataset:
        stored = list(flat_rows(dataset))
    assert rows == len(stored) and trace["displayTimeUnit"] == "ns"
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {event["pid"] for event in trace["traceEvents"]} == {1, 2}
    for process in (1, 2):
        mine = [event for event in spans if event["pid"] == process]
        calls = [event for event in mine if "args" in event]
        assert len(calls) == sum(row["occurrences"] for row in stored) / 2
        for one, later in itertools.pairwise(calls):
            assert later["ts"] == pytest.approx(one["ts"] + one["dur"], abs=0.01)
        layers = [event for event in mine if event["cat"] == "layer"]
        assert layers
        for layer, call in itertools.product(layers, calls):
            start, end = max(layer["ts"], call["ts"]), min(layer["ts"] + layer["dur"], call["ts"] + call["dur"])
            assert end - start < 0.01 or end - start == pytest.approx(call["dur"], abs=0.01), "a call crosses a layer"
    assert {event["name"] for event in spans if "args" in event} == {title_of(row["op_names"]) for row in stored}


def test_collect_and_explain_write_a_trace_and_the_losses_are_below_their_calls(tmp_path: Path) -> None:
    asked = ("mlp", "--threads", "1", "--quiet", "--db", "sqlite:///runs.db")
    done = op_profiler("explain", *asked, "--trace", "trace.json", folder=tmp_path)
    assert done.returncode == 5 and not (tmp_path / "trace.json").exists()
    for command, extra in (("collect", ()), ("explain", ("--trials-from", "none", "--json"))):
        done = op_profiler(command, *asked, *extra, "--trace", f"{command}.json", folder=tmp_path)
        assert done.returncode == 0, done.stderr
    before, after = (
        json.loads((tmp_path / f"{command}.json").read_text())["traceEvents"] for command in ("collect", "explain")
    )
    assert [event for event in after if event.get("cat") != "loss"] == before and len(before) > 5
    calls = {event["args"]["operator_key"]: event for event in before if "operator_key" in event.get("args", {})}
    found = {one["key"]: one for one in json.loads(done.stdout)["operators"]}
    drawn = [event for event in after if event.get("cat") == "loss"]
    wanted = [(calls[key], one, loss) for key, one in found.items() for loss in one["losses"]]
    assert wanted and len(drawn) == len(wanted)  # mlp calls each operator once
    for call, one, loss in wanted:
        (event,) = (event for event in drawn if event["args"]["because"] == loss["because"] and inside(event, call))
        assert event["name"] == loss["cause"] and event["args"]["lost_us"] == loss["lost_us"]
        share = pytest.approx(loss["lost_us"] / one["time_us"], abs=0.01)
        assert event["dur"] / call["dur"] == share or event["ts"] + event["dur"] == pytest.approx(
            call["ts"] + call["dur"], abs=0.01
        )


def inside(event: dict[str, Any], call: dict[str, Any]) -> bool:
    """Whether an event lies within a call."""
    return bool(call["ts"] - 0.01 <= event["ts"] and event["ts"] + event["dur"] <= call["ts"] + call["dur"] + 0.01)


def test_node_data_has_the_time_of_each_layer_and_colours(url: str, tmp_path: Path) -> None:
    data, rows = exported(url, tmp_path / "nodes.json", format="model_explorer", threads=1)
    with Dataset.open(url, read_only=True) as dataset:
        stored = list(flat_rows(dataset, where="threads = 1"))
    layers = {call[0] for row in stored for call in row["layers"] or () if call}
    assert rows == len(stored) and layers and layers <= set(data["results"])
    assert all(node["value"] > 0 for node in data["results"].values())
    bounds = [one["value"] for one in data["thresholds"]]
    assert bounds == sorted(bounds) and bounds[-1] >= max(node["value"] for node in data["results"].values()) - 0.001
    assert all(one["bgColor"].startswith("#") for one in data["thresholds"])


def test_node_data_colours_the_calls_of_a_torch_program(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    layers = {
        "stem": nn.Conv2d(3, 16, 3),
        "linear": nn.Conv2d(16, 32, 3),
        "norm": nn.BatchNorm2d(32),
        "relu": nn.ReLU(),
    }
    layers |= {"pool": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten(), "head": nn.Linear(32, 10)}
    model = nn.Sequential(collections.OrderedDict(layers)).eval()  # the node "linear" is the call of the layer "head"
    torch.export.save(torch.export.export(model, (torch.randn(1, 3, 32, 32),)), str(tmp_path / "net.pt2"))
    db = f"sqlite:///{tmp_path}/runs.db"
    done = op_profiler("collect", "file:net.pt2", "--threads", "1", "--quiet", "--db", db, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    data, _ = exported(db, tmp_path / "nodes.json", format="model_explorer")
    with Dataset.open(db, read_only=True) as dataset:
        stored = list(flat_rows(dataset))
    # Model Explorer's adapter takes the names of the graph's nodes as ids (create_node in its adapter for programs).
    graph = torch.export.load(str(tmp_path / "net.pt2")).graph
    assert set(data["results"]) <= {node.name for node in graph.nodes if node.op == "call_function"}
    us: dict[str, float] = collections.defaultdict(float)
    anchors: dict[str, set[str]] = collections.defaultdict(set)
    for row in stored:
        for at, (node, *_) in enumerate(row["fx_nodes"]):
            us[node] += statistics.median(samples[at] for samples in row["samples_us"])
            anchors[node].add(row["anchor"])
    assert {name: one["value"] for name, one in data["results"].items()} == pytest.approx(us, abs=0.001)
    kinds = {"conv2d": "conv2d", "conv2d_1": "conv2d", "linear": "dense", "adaptive_avg_pool2d": "adaptive_avg_pool2d"}
    assert all(any(kind in anchor for anchor in anchors[node]) for node, kind in kinds.items()), anchors


def test_node_data_is_of_one_run(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="2 runs fit.*--threads"):
        exported(url, tmp_path / "nodes.json", format="model_explorer")
    assert not (tmp_path / "nodes.json").exists()


@pytest.mark.parametrize("name", ["chrome_trace", "model_explorer"])
def test_nobody_reads_them(name: str, url: str, tmp_path: Path) -> None:
    exported(url, tmp_path / "file.json", format=name, threads=1)
    done = op_profiler("import", "file.json", "--format", name, "--db", "sqlite:///new.db", folder=tmp_path)
    assert done.returncode == 2 and "for viewers" in done.stderr and not (tmp_path / "new.db").exists()
    _, rows = exported(url, tmp_path / "none.json", format=name, where="median_us < 0")
    assert rows == 0
