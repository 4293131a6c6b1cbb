"""The only page of a scheduler that dask-kubernetes' operator needs: since when the cluster has been idle.

Dask's other pages for the operator are not served, because they can change the cluster.
"""

from distributed.http.scheduler.api import CheckIdleHandler

routes: list[tuple[str, type[CheckIdleHandler], dict[str, object]]] = [("/api/v1/check_idle", CheckIdleHandler, {})]
