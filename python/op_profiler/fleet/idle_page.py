"""The page of a scheduler that dask-kubernetes' operator reads: since when the cluster is idle. Dask's other pages for
the operator can change things."""

from distributed.http.scheduler.api import CheckIdleHandler

routes: list[tuple[str, type[CheckIdleHandler], dict[str, object]]] = [("/api/v1/check_idle", CheckIdleHandler, {})]
