"""Starts workers as Kubernetes pods, one per node, for the duration of a command, through dask-kubernetes' operator.

dask-kubernetes' client, ``KubeCluster``, does not support TLS, so this module creates the resource ``DaskCluster``
itself. The certificates are in a Secret that the resource owns, so Kubernetes removes it together with the resource.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from op_profiler.errors import MeasureError, UsageError, needing
from op_profiler.fleet import settings
from op_profiler.fleet.cluster_files import read, take_count

_TAKES = ("image", "workers", "namespace", "resources", "env", "node_selector")
_PORT = 8786
_TLS_FOLDER = "/tls"
_AGAIN_SECONDS = 1.0
_OPERATOR_SECONDS = 60
_IDLE_SECONDS = 2 * settings.WAIT_SECONDS
"""Idle time in seconds after which the operator ends a cluster, for example after its command was killed."""

_PAGES = ["distributed.http.scheduler.prometheus", "distributed.http.health", "op_profiler.fleet.idle_page"]
_NO_OPERATOR = (
    "dask-kubernetes' operator is not there; install it: helm install --repo https://helm.dask.org "
    "--create-namespace --namespace dask-operator --generate-name dask-kubernetes-operator"
)


class KubernetesCluster:
    """A scheduler and workers in pods, which exist until `close` is called.

    Args:
        spec: the resource ``DaskCluster``, from `cluster_spec`.
        namespace: namespace of the pods; None for the user's default.

    Raises:
        MeasureError: Kubernetes does not answer, rejects the resource, has no operator, or does not start the
            scheduler.

    Attributes:
        scheduler_address: address of the scheduler from this machine.
        security: certificates of scheduler and workers.
    """

    def __init__(self, spec: dict[str, Any], namespace: str | None) -> None:
        from kr8s.objects import Secret, new_class

        self.security = settings.security("tls://")
        self._stack = contextlib.ExitStack()
        try:
            with _plainly():
                cluster = new_class(spec["kind"], spec["apiVersion"])(spec, namespace=namespace)
                cluster.create()
                self._stack.callback(cluster.delete)
                Secret(_secret(cluster), namespace=cluster.namespace).create()
                self.scheduler_address = self._wait_for_scheduler(cluster)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the resource, unless it was removed already."""
        from kr8s import NotFoundError

        with _plainly(), contextlib.suppress(NotFoundError):
            self._stack.close()

    def _wait_for_scheduler(self, cluster: Any) -> str:
        """Wait until the scheduler can be reached; return its address from this machine."""
        from kr8s.objects import Deployment, Service

        def has(one: Any, status: str) -> bool:
            one.refresh()
            return bool(one.raw.get("status", {}).get(status))

        of_cluster = {"name": f"{cluster.name}-scheduler", "namespace": cluster.namespace}
        _until(lambda: has(cluster, "phase"), _OPERATOR_SECONDS, _NO_OPERATOR)
        scheduler = Deployment({"metadata": of_cluster})
        _until(
            lambda: has(scheduler, "readyReplicas"),
            settings.WAIT_SECONDS,
            f"the pod of the scheduler is not ready after {settings.WAIT_SECONDS} s; see why: kubectl describe pods "
            f"--namespace {cluster.namespace} --selector dask.org/cluster-name={cluster.name}",
        )
        if os.environ.get("KUBERNETES_SERVICE_HOST"):  # this process is in a pod itself
            return f"tls://{scheduler.name}.{scheduler.namespace}:{_PORT}"
        service = Service.get(scheduler.name, namespace=scheduler.namespace)
        port = self._stack.enter_context(service.portforward(_PORT, local_port="auto"))
        return f"tls://127.0.0.1:{port}"


def kubernetes_cluster(path: Path) -> KubernetesCluster:
    """Start a scheduler in a pod, and workers in pods on separate nodes.

    Args:
        path: YAML file with ``image`` and optionally other arguments of `cluster_spec` and `KubernetesCluster`.

    Raises:
        UsageError: the file cannot be used, or this machine has no certificates.
        MissingPackageError: dask-kubernetes is not installed.
        MeasureError: as for `KubernetesCluster`.
    """
    options = read("kubernetes", path, "image: registry.lab/op-profiler:1")
    if unknown := sorted(options.keys() - set(_TAKES)):
        raise UsageError(f"{path}: unknown {', '.join(unknown)}; it takes {', '.join(_TAKES)}")
    workers, namespace = take_count(options, "workers", path), options.pop("namespace", None)
    if not isinstance(options.get("image"), str):
        raise UsageError(f"{path}: name the image of the pods, with op-profiler in it, as image: REGISTRY/NAME:TAG")
    for name in ("resources", "env", "node_selector"):
        if not isinstance(options.get(name, {}), dict):
            raise UsageError(f"{path}: {name} is {options[name]!r}; give names and values")
    settings.security("tls://")  # where there are no certificates it says how to make them
    name = f"op-profiler-{uuid.uuid4().hex[:8]}"
    return KubernetesCluster(cluster_spec(name, workers, **options), namespace)


def cluster_spec(
    name: str,
    workers: int,
    *,
    image: str,
    resources: dict[str, str] | None = None,
    env: dict[str, str] | None = None,
    node_selector: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return the resource ``DaskCluster`` from which dask-kubernetes' operator creates a scheduler and workers.

    Args:
        name: name of the cluster, and of the Secret with its certificates.
        workers: number of workers; each runs on a separate node.
        image: image of all pods, in which this package is installed.
        resources: Kubernetes resources that are reserved for each worker, such as ``cpu`` and ``memory``.
        env: environment variables of all pods.
        node_selector: labels of the nodes for workers.

    Raises:
        MissingPackageError: dask-kubernetes is not installed.
    """
    with needing("dask-kubernetes", "--cluster kubernetes:FILE", extra="kubernetes"):
        from dask_kubernetes.operator import make_cluster_spec
    spec: dict[str, Any] = make_cluster_spec(name, image=image, n_workers=workers, idle_timeout=_IDLE_SECONDS)
    usual = {settings.TLS: _TLS_FOLDER} | (env or {})
    _complete(
        spec["spec"]["scheduler"]["spec"],
        ["scheduler", "--host", "0.0.0.0", "--port", str(_PORT)],
        usual | {"DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": repr(_PAGES)},
        _from_secret(name),
    )
    worker = spec["spec"]["worker"]["spec"]
    locks, cache = {"OP_PROFILER_LOCKS": "/locks"}, {"OP_PROFILER_CACHE": "/cache"}
    _complete(
        worker,
        ["worker", f"tls://{name}-scheduler:{_PORT}"],
        usual | locks | cache,
        _from_secret(name) | _of_node("locks", "/run/op_profiler") | _of_node("cache", "/var/cache/op_profiler"),
    )
    (container,) = worker["containers"]
    container["env"].append(
        # Pods of a node are one machine, also after a boot.
        {"name": "OP_PROFILER_HOST_ID", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    )
    container["resources"] = {"requests": resources or {}, "limits": resources or {}}
    worker["nodeSelector"] = node_selector or {}
    same = {"dask.org/cluster-name": name, "dask.org/component": "worker"}
    apart = {"labelSelector": {"matchLabels": same}, "topologyKey": "kubernetes.io/hostname"}
    worker["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    return spec


def _complete(pod: dict[str, Any], words: list[str], env: dict[str, str], volumes: dict[str, Any]) -> None:
    """Complete the specification of a pod, in place, so that the pod runs a command of op-profiler.

    Args:
        words: words of the command after ``op-profiler``.
        env: environment variables.
        volumes: volumes by the folder in which the pod mounts them.
    """
    (container,) = pod["containers"]
    del container["args"], container["resources"]
    if words[0] == "worker":
        del container["ports"]  # Dask's own page of a worker, which ours has not
    container["command"] = ["op-profiler", *words]
    container["env"] = [{"name": name, "value": str(value)} for name, value in env.items()]
    container["volumeMounts"] = [
        {"name": folder.strip("/"), "mountPath": folder, "readOnly": "secret" in source}
        for folder, source in volumes.items()
    ]
    pod["volumes"] = [{"name": folder.strip("/"), **source} for folder, source in volumes.items()]


def _from_secret(name: str) -> dict[str, Any]:
    return {_TLS_FOLDER: {"secret": {"secretName": name}}}


def _of_node(name: str, path: str) -> dict[str, Any]:
    """Return a volume for the folder `path` of the node, which the pod mounts as ``/NAME``."""
    return {f"/{name}": {"hostPath": {"path": path, "type": "DirectoryOrCreate"}}}


def _secret(cluster: Any) -> dict[str, Any]:
    """Return the Secret with the certificates; the cluster owns it, so Kubernetes removes both together."""
    owner = {"apiVersion": cluster.version, "kind": cluster.kind, "name": cluster.name, "uid": cluster.metadata.uid}
    folder = Path(os.environ[settings.TLS])
    names = (settings.AUTHORITY, settings.NODE, settings.KEY)
    return {
        "metadata": {"name": cluster.name, "ownerReferences": [owner]},
        "stringData": {name: (folder / name).read_text() for name in names},
    }


def _until(holds: Callable[[], bool], seconds: float, otherwise: str) -> None:
    import kr8s

    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(kr8s.NotFoundError):
            if holds():
                return
        if time.monotonic() > until:
            raise MeasureError(otherwise)
        time.sleep(_AGAIN_SECONDS)


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Convert errors of Kubernetes inside the block to MeasureError."""
    import httpx
    import kr8s

    try:
        yield
    except kr8s.ServerError as error:
        unknown = error.response is not None and error.response.status_code == 404
        if unknown and not str(error).startswith("namespaces "):  # what it does not know is our kind of resource
            raise MeasureError(_NO_OPERATOR) from None
        raise MeasureError(f"Kubernetes refuses it: {error}") from None
    except (kr8s.APITimeoutError, kr8s.ConnectionClosedError, httpx.HTTPError, OSError) as error:
        raise MeasureError(f"the API server of Kubernetes does not answer: {error}") from None
    except ValueError as error:
        raise MeasureError(f"no Kubernetes is known here; set KUBECONFIG, or make ~/.kube/config: {error}") from None
