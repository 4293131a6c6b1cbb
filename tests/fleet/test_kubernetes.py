"""Pods of Kubernetes, which is not here: what its API server and dask-kubernetes' operator would be given."""

from __future__ import annotations

import ast
import contextlib
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes import scheduler

from op_profiler.errors import MeasureError, MissingPackageError, UsageError
from op_profiler.fleet.certificates import make
from op_profiler.fleet.cluster import Cluster
from op_profiler.fleet.settings import TLS

from ..command_line import op_profiler
from ..installed import needs

pytestmark = needs("distributed", "dask_kubernetes", "jsonschema")

NAME = "op-profiler-0a1b2c3d"
RESOURCES = {"cpu": "8", "memory": "16Gi"}


@pytest.fixture(scope="module")
def spec() -> dict[str, Any]:
    from op_profiler.fleet.kubernetes import cluster_spec

    return cluster_spec(
        NAME, 4, image="lab/op-profiler:1", resources=RESOURCES, env={"LAB": "1"}, node_selector={"kind": "quiet"}
    )


def pod(spec: dict[str, Any], of: str) -> dict[str, Any]:
    return dict(spec["spec"][of]["spec"])


def container(spec: dict[str, Any], of: str) -> dict[str, Any]:
    (found,) = pod(spec, of)["containers"]
    return dict(found)


def strict(schema: Any) -> Any:
    """A schema of Kubernetes' that refuses what its API server would drop without a word."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(part) for name, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        found.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        found["type"] = ["integer", "string"]
    return found


def test_it_is_a_resource_of_dask_kubernetes(spec: dict[str, Any]) -> None:
    """Its definitions hold those of Kubernetes' pods and services, too."""
    import dask_kubernetes
    import jsonschema
    from dask_kubernetes.operator.validation import validate_cluster_name

    folder = Path(dask_kubernetes.__file__).parent / "operator/deployment/helm/dask-kubernetes-operator/crds"
    definition = yaml.safe_load((folder / "daskcluster.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    assert spec["apiVersion"] == f"{definition['spec']['group']}/{version['name']}"
    assert spec["kind"] == definition["spec"]["names"]["kind"]
    schema = strict(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    jsonschema.validate(spec["spec"], schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**spec["spec"], "chairs": 3}, schema)
    validate_cluster_name(NAME)


def test_each_worker_has_a_node_and_whole_cores(spec: dict[str, Any]) -> None:
    from dask_kubernetes.operator.controller import controller

    assert spec["spec"]["worker"]["replicas"] == 4
    assert container(spec, "worker")["resources"] == {"requests": RESOURCES, "limits": RESOURCES}
    assert "resources" not in container(spec, "scheduler")
    made = controller.build_worker_deployment_spec(f"{NAME}-default", "lab", NAME, "1", pod(spec, "worker"), {}, {})
    template = made["spec"]["template"]
    (apart,) = template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert apart["topologyKey"] == "kubernetes.io/hostname" and template["spec"]["nodeSelector"] == {"kind": "quiet"}
    told = {variable["name"]: variable for variable in template["spec"]["containers"][0]["env"]}
    assert told["OP_PROFILER_HOST_ID"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert told["LAB"]["value"] == "1" and {"OP_PROFILER_LOCKS", "OP_PROFILER_CACHE"} < told.keys()


@pytest.mark.parametrize(
    ("of", "refused"), [("scheduler", "lets whoever reaches it run code"), ("worker", "tls:// needs the folder")]
)
def test_pods_run_commands_that_there_are(of: str, refused: str, spec: dict[str, Any], tmp_path: Path) -> None:
    """Without its certificates each is refused for that, and not for a word of it."""
    done = op_profiler(*container(spec, of)["command"][1:], folder=tmp_path, environment={TLS: ""})
    assert done.returncode == 2 and refused in done.stderr
    mounts = {mount["name"]: mount["mountPath"] for mount in container(spec, of)["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in pod(spec, of)["volumes"]}
    told = {variable["name"]: variable.get("value") for variable in container(spec, of)["env"]}
    assert told[TLS] == mounts["tls"]


def test_a_scheduler_tells_the_operator_since_when_it_is_idle(
    spec: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask's page that sends workers away is not there: whoever is in the network reaches these pages."""
    told = {variable["name"]: variable["value"] for variable in container(spec, "scheduler")["env"]}
    (pages,) = (name for name in told if name.endswith("ROUTES"))
    assert ast.literal_eval(told[pages])
    monkeypatch.setenv(pages, told[pages])
    with scheduler(tmp_path) as (_, _):
        (log,) = tmp_path.glob("scheduler*.log")
        address = log.read_text().partition("metrics at ")[2].partition("/metrics")[0]
        for probe in ("readinessProbe", "livenessProbe"):
            path = container(spec, "scheduler")[probe]["httpGet"]["path"]
            assert urllib.request.urlopen(address + path).status == 200
        for _ in range(2):  # the first asks whether anything happened since the last
            answer = urllib.request.urlopen(f"{address}/api/v1/check_idle").read()
        assert json.loads(answer)["idle_since"] > 0
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/api/v1/retire_workers", data=b"{}")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot be read"),
        ("- 1", "no YAML of names and values"),
        ("workers: none", "1 or more"),
        ("workers: 2", "name the image"),
        ("image: lab/op-profiler:1\nqueue: compute", "unknown queue; it takes image, workers"),
        ("image: lab/op-profiler:1\nresources: 8", "give names and values"),
    ],
)
def test_a_file_that_cannot_be_used(
    text: str | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "tls", ["localhost"])
    monkeypatch.setenv(TLS, str(tmp_path / "tls"))
    if text is not None:
        (tmp_path / "pods.yaml").write_text(text)
    with pytest.raises(UsageError, match=sentence):
        Cluster(f"kubernetes:{tmp_path}/pods.yaml")


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, configuration = tmp_path / "pods.yaml", tmp_path / "config"
    file.write_text("image: lab/op-profiler:1")
    monkeypatch.delenv(TLS, raising=False)
    with pytest.raises(UsageError, match="op-profiler certificates"):
        Cluster(f"kubernetes:{file}")
    make(tmp_path / "tls", ["localhost"])
    monkeypatch.setenv(TLS, str(tmp_path / "tls"))
    monkeypatch.setenv("KUBECONFIG", str(configuration))
    with pytest.raises(MeasureError, match="set KUBECONFIG"):
        Cluster(f"kubernetes:{file}")
    there = {"name": "lab", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "lab", "context": {"cluster": "lab", "user": "me"}}
    about = {"clusters": [there], "contexts": [context], "users": [{"name": "me", "user": {}}]}
    configuration.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "lab", **about}))
    with pytest.raises(MeasureError, match="does not answer"):
        Cluster(f"kubernetes:{file}")


def test_the_package_is_named(tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text("image: lab/op-profiler:1")
    make(tmp_path / "tls", ["localhost"])
    done = op_profiler(
        *("collect", "--modelname", "mlp", "--cluster", f"kubernetes:{file}"),
        folder=tmp_path,
        environment={TLS: str(tmp_path / "tls")},
        without=["dask_kubernetes"],
    )
    assert done.returncode == MissingPackageError.exit_code and "source ./env_var.sh kubernetes" in done.stderr


@pytest.mark.parametrize(
    ("status", "text", "sentence"),
    [
        (404, "404 page not found", "operator is not there; install it: helm install"),
        (404, 'namespaces "lab" not found', 'Kubernetes refuses it: namespaces "lab" not found'),
        (403, "daskclusters is forbidden", "Kubernetes refuses it: daskclusters is forbidden"),
    ],
)
def test_why_an_api_server_refuses_is_said(status: int, text: str, sentence: str) -> None:
    import httpx
    import kr8s

    from op_profiler.fleet.kubernetes import _plainly

    with pytest.raises(MeasureError, match=sentence), _plainly():
        raise kr8s.ServerError(text, response=httpx.Response(status))


def test_results_are_not_lost_where_an_api_server_is_gone_at_the_end(
    shared: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import httpx

    from op_profiler.fleet.kubernetes import KubernetesCluster

    def delete() -> None:
        raise httpx.ConnectError("All connection attempts failed")

    pods = KubernetesCluster.__new__(KubernetesCluster)
    pods._stack = contextlib.ExitStack()
    pods._stack.callback(delete)
    with Cluster(shared) as cluster:
        cluster._own = pods
        assert cluster.workers()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("note: workers of this command could not be removed")
    assert line.endswith("the API server of Kubernetes does not answer: All connection attempts failed")


def test_what_the_operator_removed_before_is_removed() -> None:
    import kr8s

    from op_profiler.fleet.kubernetes import KubernetesCluster

    asked: list[str] = []

    def delete() -> None:
        asked.append("delete")
        raise kr8s.NotFoundError("it is not there")

    cluster = KubernetesCluster.__new__(KubernetesCluster)
    cluster._stack = contextlib.ExitStack()
    cluster._stack.callback(delete)
    cluster.close()
    assert asked == ["delete"]
