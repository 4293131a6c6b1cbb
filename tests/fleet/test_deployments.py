"""Files of the docs for Docker and Kubernetes, neither of which is here: they say what this package takes."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("distributed")

from op_profiler.fleet import settings
from op_profiler.measure import turns
from op_profiler.targets.llvm import identity

from ..command_line import op_profiler

DOCS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"


def pods() -> dict[str, dict[str, Any]]:
    """What a pod of each of our programs is, by its name."""
    parts = {part["kind"]: part for part in yaml.safe_load_all((DOCS / "kubernetes.yaml").read_text())}
    assert parts["Service"]["spec"]["ports"] == [{"port": 8786}]
    found = {}
    for kind in ("Deployment", "DaemonSet"):
        spec = parts[kind]["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels
        if kind == "Deployment":
            assert parts["Service"]["spec"]["selector"] == labels
        pod = spec["template"]["spec"]
        found[pod["containers"][0]["name"]] = pod
    return found


@pytest.mark.parametrize(
    ("program", "refused"), [("scheduler", "lets whoever reaches it run code"), ("worker", "tls:// needs the folder")]
)
def test_a_pod_runs_a_command_that_there_is(
    program: str, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its certificates it is refused for that, and not for a word of it."""
    monkeypatch.delenv(settings.TLS, raising=False)
    pod = pods()[program]
    (container,) = pod["containers"]
    assert container["command"][:2] == ["op-profiler", program]
    done = op_profiler(*container["command"][1:], folder=tmp_path)
    assert done.returncode == 2 and refused in done.stderr
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    told = {variable["name"]: variable for variable in container["env"]}
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert told.pop(settings.TLS)["value"] in mounted
    for name in told:
        assert any(f'"{name}"' in inspect.getsource(module) for module in (identity, turns))


def test_the_worker_of_a_pod_has_whole_cores_and_the_locks_of_its_machine() -> None:
    pod = pods()["worker"]
    (container,) = pod["containers"]
    resources = container["resources"]
    assert resources["requests"] == resources["limits"] and int(resources["limits"]["cpu"]) > 0
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    (lock,) = (variable["value"] for variable in container["env"] if variable["name"] == "OP_PROFILER_LOCKS")
    assert {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}[lock] == "locks"
    (advice,) = (item for item in (DOCS / "fleet.md").read_text().split("\n- ") if f"`{paths['locks']}`" in item)
    assert "set `OP_PROFILER_LOCKS` to that folder" in " ".join(advice.split())
    assert "--cpu-manager-policy=static" in (DOCS / "fleet.md").read_text()


def test_the_server_of_a_dataset_is_one_that_this_package_takes() -> None:
    (server,) = yaml.safe_load((DOCS / "compose.yaml").read_text())["services"].values()
    name, version = server["image"].split(":")
    assert name == "postgres" and int(version) >= 13  # what the page asks for
    assert "127.0.0.1" in server["ports"][0] and server["ports"][0].endswith(":5432:5432")
    page = (DOCS / "fleet.md").read_text()
    owner = server["environment"]["POSTGRES_USER"]
    assert f"postgresql://{owner}:PASSWORD@HOST/{owner}" in page and "compose.yaml" in page
    assert "--encoding=UTF8" in server["environment"]["POSTGRES_INITDB_ARGS"] and "--encoding=UTF8" in page
