"""What dask-kubernetes' operator asks a scheduler: since when it is idle. Dask's other pages for it change things."""

from distributed.http.scheduler.api import CheckIdleHandler

routes: list[tuple[str, type[CheckIdleHandler], dict[str, object]]] = [("/api/v1/check_idle", CheckIdleHandler, {})]
