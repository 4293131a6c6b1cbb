"""Shared parts of the tests: real models, built once a session, and real databases."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from .nursery import ZYGOTES, Zygotes
from .postgresql import Server, binaries, running

settings.load_profile("ci")  # the same examples in every run, and no limit on the time that one takes
CORES = os.sched_getaffinity(0)
# Typer reads these when it is imported: what commands print must not depend on where the tests run.
os.environ["_TYPER_FORCE_DISABLE_TERMINAL"] = "1"
for name in ("FORCE_COLOR", "PY_COLORS"):
    os.environ.pop(name, None)
os.environ.setdefault("TOPHUB_LOCATION", "NONE")
# Compiled modules are kept, also where the machine asks not to: tests start Python some hundred times.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A shell that runs the tests in its background has Ctrl-C ignored, also in what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# The tests ask whether load is seen and marked, not for a quiet machine: one window of rounds is repeated, no more.
os.environ.setdefault("OP_PROFILER_PATIENCE_SECONDS", "0.1")
# Threads of xgboost, torch and numpy spin while they wait for each other. Where two processes of the tests share two
# cores, a fit of a second then takes a minute. Those of TVM spin before they sleep, a fifth of a short collection.
os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
os.environ["TVM_THREAD_POOL_SPIN_COUNT"] = "0"


LONGEST = (
    "fleet/",  # waits, beside what computes
    *("boards/", "compilers/relax/", "packaging/test_style.py", "frontends/", "dataset/", "prediction/latency/"),
    *("report/", "malformed/", "parallel/corun/test_collaborate.py", "tuning/test_tuning.py", "test_api.py"),
    *("collection/test_additivity.py", "collection/test_failures.py", "collection/test_collection.py"),
    *("collection/test_killed.py", "collection/test_unhurried.py", "collection/studies/test_tune.py"),
    *("parallel/corun/test_run.py", "registry/test_plugins.py", "docs/"),
)
"""Files of a third of a minute and more, and folders with such, which have to begin first."""


TOGETHER = (
    ("fleet/",),  # PostgreSQL; and they wait, which two such at once would do on one core
    ("boards/",),  # the board's runtime
    ("dataset/",),  # PostgreSQL
    ("prediction/latency/",),  # a fitted predictor
    ("report/",),  # a collection and a browser
    ("frontends/", "malformed/test_models.py"),  # torch and transformers
    ("malformed/test_files.py", "malformed/test_predictors.py", "malformed/test_tables.py"),  # a file of every kind
)
"""What one process runs, since its files share what takes long to make. Other files are handed out one by one."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            name = file.removeprefix("tests/")
            return next((places[0] for places in TOGETHER if name.startswith(places)), file)

    return Together(config, log)


def pytest_configure(config: pytest.Config) -> None:
    if ZYGOTES not in os.environ:  # else this is a process of xdist's, or one that a test has started
        config.add_cleanup(Zygotes().end)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    @functools.cache  # of some hundred files, asked for thousands of tests
    def rank(file: Path) -> int:
        name = file.relative_to(Path(__file__).parent).as_posix()
        return next((rank for rank, first in enumerate(LONGEST) if name.startswith(first)), len(LONGEST))

    items.sort(key=lambda item: rank(item.path))


@pytest.fixture(autouse=True)
def cores() -> Iterator[None]:
    """TVM's pool binds its threads and the one that calls it, and what later tests start would inherit that."""
    yield
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            os.sched_setaffinity(int(task), CORES)


@pytest.fixture(autouse=True)
def choices() -> Iterator[None]:
    """The compiler, pipeline and build of TVM that a command chooses hold for its process, and what that starts. Those
    of a test that runs a command in this process are not for the next one."""
    before = _choices()
    yield
    for name in _choices().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _choices() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("OP_PROFILER_")}


@pytest.fixture(scope="session")
def tvm() -> Any:
    from op_profiler.compilers.tvm_build import load_tvm

    return load_tvm()


@pytest.fixture(scope="session")
def target(tvm: Any) -> Any:
    from op_profiler.targets.target import resolve_target

    return resolve_target("llvm")


@pytest.fixture(autouse=True, scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built and lowered models go to a folder of this run, which its processes share. Schedule records and locks are of
    one process: what a test tunes changes no other's build, and no test waits for another process, or for you."""
    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared-cache"
    shared.mkdir(exist_ok=True)
    os.environ["OP_PROFILER_CACHE"] = str(shared)
    os.environ["OP_PROFILER_SCHEDULES"] = str(own / "schedules")
    os.environ["OP_PROFILER_LOCKS"] = str(own)
    return shared


@pytest.fixture(scope="session")
def small_network(tvm: Any) -> Any:
    """Two convolutions (one called twice), a residual addition, pooling and a dense layer, as an ImportedModel."""
    import numpy as np

    from op_profiler.compilers.imported_model import ImportedModel, InputSpec

    relay = tvm.relay
    data = relay.var("data", shape=(1, 16, 32, 32))
    first = relay.var("w1", shape=(16, 16, 3, 3))
    second = relay.var("w2", shape=(16, 16, 3, 3))
    dense = relay.var("w3", shape=(10, 16))
    x = relay.nn.relu(relay.nn.conv2d(data, first, padding=(1, 1), channels=16, kernel_size=(3, 3)))
    y = relay.nn.relu(relay.nn.conv2d(x, second, padding=(1, 1), channels=16, kernel_size=(3, 3)))
    z = relay.nn.conv2d(y, first, padding=(1, 1), channels=16, kernel_size=(3, 3), strides=(2, 2))
    pooled = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(z))
    out = relay.nn.softmax(relay.nn.dense(pooled, dense))
    module = tvm.IRModule.from_expr(relay.Function([data, first, second, dense], out))
    rng = np.random.default_rng(0)
    shapes = {"w1": (16, 16, 3, 3), "w2": (16, 16, 3, 3), "w3": (10, 16)}
    params = {k: tvm.nd.array(rng.standard_normal(s).astype("float32")) for k, s in shapes.items()}
    module = relay.transform.InferType()(module)
    return ImportedModel("small", "test", module, params, (InputSpec("data", (1, 16, 32, 32)),))


@pytest.fixture(scope="session")
def compiled_small(small_network: Any, target: Any) -> Any:
    from op_profiler.compilers.relay.lower import compile_model

    return compile_model(small_network, target)


@pytest.fixture(scope="session")
def broken_network(tvm: Any) -> Any:
    """A convolution that builds, then a grouped transposed 3-D one, for which TVM 0.19 has no schedule."""
    from op_profiler.compilers.imported_model import ImportedModel, InputSpec

    relay = tvm.relay
    data, first = relay.var("data", shape=(1, 8, 8, 8, 8)), relay.var("w1", shape=(8, 8, 3, 3, 3))
    second = relay.var("w2", shape=(8, 4, 3, 3, 3))
    x = relay.nn.relu(relay.nn.conv3d(data, first, channels=8, kernel_size=(3, 3, 3)))
    y = relay.nn.softmax(relay.nn.conv3d_transpose(x, second, groups=2, channels=8, kernel_size=(3, 3, 3)))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([data, first, second], y)))
    shapes = {"data": (1, 8, 8, 8, 8), "w1": (8, 8, 3, 3, 3), "w2": (8, 4, 3, 3, 3)}
    return ImportedModel("broken", "test", module, {}, tuple(InputSpec(n, s) for n, s in shapes.items()))


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A server that is gone at the end."""
    if not binaries():
        pytest.skip("no PostgreSQL server below /usr/lib/postgresql")
    pytest.importorskip("psycopg")
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(running("fsync=off"))
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no PostgreSQL server can be set up here: {error}")
        yield server


@pytest.fixture(scope="session")
def postgres_server(postgresql: Server) -> str:
    """Address of a server."""
    return postgresql.url


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """The server with nothing in it."""
    import psycopg

    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return postgres_server


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/new/folder/test.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """Each kind of database in turn, empty."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))
