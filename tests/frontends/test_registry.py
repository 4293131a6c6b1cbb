"""Sources and names without anything heavy, and fingerprints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from op_profiler.errors import UnknownNameError
from op_profiler.frontends import SOURCES, get_frontend
from op_profiler.frontends._base import ModelRequest

ROOT = Path(__file__).resolve().parents[2]

NAMES_AND_REFUSALS = """
import sys
from op_profiler.errors import OpProfilerError
from op_profiler.frontends import SOURCES, get_frontend
from op_profiler.frontends._base import ModelRequest
for source in SOURCES:
    frontend = get_frontend(source)
    assert frontend.source == source and frontend.summary
    frontend.names(), frontend.default_names()
    try:
        frontend.check(ModelRequest(source=source, name="no-such-model"))
        raise SystemExit(f"{source} takes anything")
    except OpProfilerError as error:
        assert "no-such-model" in str(error), error
print([m for m in ("numpy", "tvm", "torch", "torchvision", "transformers", "onnx", "tflite") if m in sys.modules])
"""


def test_names_and_refusals_import_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NAMES_AND_REFUSALS],
        env={"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_an_unknown_source_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="'simpel'.*simple"):
        get_frontend("simpel")


@pytest.mark.parametrize("source", SOURCES)
def test_default_names_are_names(source: str) -> None:
    frontend = get_frontend(source)
    if frontend.names():
        assert set(frontend.default_names()) <= set(frontend.names())


@pytest.mark.parametrize(("source", "name"), [("local", "mlp"), ("simple", "conv2d")])
def test_a_fingerprint_depends_on_the_request_and_nothing_else(source: str, name: str) -> None:
    frontend = get_frontend(source)
    first = frontend.fingerprint(ModelRequest(source=source, name=name))
    assert first == frontend.fingerprint(ModelRequest(source=source, name=name))
    assert first != frontend.fingerprint(ModelRequest(source=source, name=name, batch_size=2))


@pytest.mark.parametrize(
    ("name", "packages"),
    [
        ("mlp", set()),
        ("gru", set()),
        ("randwire-7", set()),
        ("resnet18", {"torch", "torchvision"}),
        ("dpn68", {"torch", "torchvision", "pretrainedmodels"}),
        ("yolov3-tiny", {"torch", "torchvision", "libreyolo"}),
    ],
)
def test_a_local_model_depends_on_the_packages_that_make_it(
    name: str, packages: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installing the extra `models`, or another version of what is in it, leaves TVM's own models as they were."""
    monkeypatch.setattr("op_profiler.frontends._zoo.torchvision_names", lambda: ("resnet18",))
    installed: dict[str, str] = {}
    monkeypatch.setattr("op_profiler.frontends._content._version", installed.get)
    request = ModelRequest(source="local", name=name)
    without = get_frontend("local").fingerprint(request)
    for package in ("torch", "torchvision", "pretrainedmodels", "libreyolo"):
        installed[package] = "1"
        assert (get_frontend("local").fingerprint(request) != without) == (package in packages), package
        del installed[package]


def test_a_fingerprint_depends_on_the_content_of_files_and_not_their_place(tmp_path: Path) -> None:
    frontend = get_frontend("tflite")
    prints = []
    for folder, content in (("a", b"\0\0\0\0TFL3one"), ("b", b"\0\0\0\0TFL3one"), ("c", b"\0\0\0\0TFL3two")):
        file = tmp_path / folder / "model.tflite"
        file.parent.mkdir()
        file.write_bytes(content)
        prints.append(frontend.fingerprint(ModelRequest(source="tflite", name=str(file))))
    assert prints[0] == prints[1] != prints[2]
