"""The dataset as the collector uses it: opened, written in transactions, read back as the project's own types."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from op_profiler.dataset import schema
from op_profiler.errors import DatasetError, MissingPackageError
from op_profiler.measure._base import Device, Measurement, ModelTiming, Settings
from op_profiler.operators._base import Operator, TensorSpec
from op_profiler.schedules._base import Schedule

_BUSY_SECONDS = 30
_SQLITE_MAGIC = b"SQLite format 3\x00"


@dataclasses.dataclass(frozen=True)
class Row:
    """One measurement with all that identifies it.

    Attributes:
        model_key: the model whose state of the caches was measured; empty for hot and cold.
        complete: False while rounds are still being added.
    """

    operator_key: str
    schedule: Schedule
    settings: Settings
    device: Device
    model_key: str
    measurement: Measurement
    complete: bool


@dataclasses.dataclass(frozen=True)
class StoredModel:
    """A model of the dataset."""

    key: str
    name: str
    source: str
    batch_size: int
    precision: str
    executor: str
    target: str
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class StoredMeasurement:
    """A measurement as it was found."""

    settings: Settings
    measurement: Measurement
    complete: bool


@dataclasses.dataclass(frozen=True)
class StoredTiming:
    """The timing of a whole model as it was found."""

    settings: Settings
    timing: ModelTiming
    complete: bool


class Dataset:
    """One open dataset. Not shared between threads; any number of processes may have the same one open."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    @classmethod
    def open(cls, url: str, *, create: bool = True, read_only: bool = False) -> Dataset:
        """Open a dataset, and bring an older schema up to date.

        Args:
            url: SQLAlchemy address, e.g. ``sqlite:///results/op_profiler.db`` or ``postgresql://host/name``.
            create: make it where it does not exist; else that is an error.
            read_only: nothing will be written; an older schema is then an error too.

        Raises:
            DatasetError: it cannot be opened, is of a newer schema, or is something else; nothing was written over.
            MissingPackageError: the address needs a driver that is not installed.
        """
        address = _address(url)
        if address.get_backend_name() == "sqlite":
            _check_file(address, create=create and not read_only)
        try:
            engine = sa.create_engine(address, connect_args=_connect_arguments(address))
        except ModuleNotFoundError as error:
            raise MissingPackageError("psycopg[binary]", "a PostgreSQL dataset", "postgres") from error
        if address.get_backend_name() == "sqlite":
            _prepare_sqlite(engine, read_only)
        dataset = cls(engine)
        try:
            with _errors(f"the dataset {address.render_as_string()}"):
                dataset._bring_up_to_date(create=create and not read_only, read_only=read_only)
        except BaseException:
            engine.dispose()
            raise
        return dataset

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with _errors("reading the dataset"), self._engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """A transaction that takes its lock at once, so that two writers queue instead of failing half way."""
        with _errors("writing to the dataset"), self._engine.connect() as connection:
            if self._engine.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
            connection.commit()

    @property
    def engine(self) -> sa.Engine:
        """For readers that need SQL of their own (`export`)."""
        return self._engine

    def _bring_up_to_date(self, *, create: bool, read_only: bool) -> None:
        present = sa.inspect(self._engine).get_table_names()
        if "schema_version" not in present:
            if present:
                raise DatasetError("this database belongs to something else: it has tables but no op_profiler schema")
            if not create:
                raise DatasetError("this database is empty; collect something into it first")
        with self._engine.connect() as connection:
            version = None
            if "schema_version" in present:
                version = connection.execute(sa.select(schema.schema_version.c.version)).scalar()
        if version == schema.VERSION:
            return
        if version is not None and version > schema.VERSION:
            raise DatasetError(
                f"this dataset has schema {version}, this op_profiler knows up to {schema.VERSION}; "
                "use a newer op_profiler. Nothing was changed"
            )
        if read_only:
            raise DatasetError(f"this dataset has the older schema {version}; open it once for writing to upgrade it")
        self._upgrade()

    def _upgrade(self) -> None:
        """Create or upgrade in one transaction, looking again under the lock: another process may have been first."""
        with self._writing() as connection:
            if self._engine.dialect.name == "postgresql":
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(715517)"))
            version = None
            if "schema_version" in sa.inspect(connection).get_table_names():
                version = connection.execute(sa.select(schema.schema_version.c.version)).scalar()
            if version is None:
                schema.metadata.create_all(connection)
                connection.execute(schema.schema_version.insert().values(version=schema.VERSION))
                return
            for step in range(version, schema.VERSION):
                schema.STEPS[step](connection)
            connection.execute(schema.schema_version.update().values(version=schema.VERSION))

    def _upsert(self, connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]], update: bool) -> None:
        if not rows:
            return
        dialect = postgresql if self._engine.dialect.name == "postgresql" else sqlite
        insert = dialect.insert(table)
        keys = [column.name for column in table.primary_key]
        if update:
            changed = {c.name: insert.excluded[c.name] for c in table.columns if c.name not in keys}
            statement = insert.on_conflict_do_update(index_elements=keys, set_=changed)
        else:
            statement = insert.on_conflict_do_nothing(index_elements=keys)
        connection.execute(statement, list(rows))

    def add_device(self, device: Device) -> None:
        """Make a device known; one that is known already is left as it is."""
        with self._writing() as connection:
            fields = dataclasses.asdict(device) | {"key": device.key}
            self._upsert(connection, schema.devices, [fields], update=False)

    def add_model(self, model: StoredModel, operators: Sequence[tuple[Operator, Sequence[int]]]) -> None:
        """Store a lowered model with its operators, in one transaction; what an earlier lowering stored is replaced.

        Args:
            operators: each distinct operator with its positions in the model.
        """
        fields = dataclasses.asdict(model) | {"notes": list(model.notes), "added_at": _now()}
        uses = [
            {"model_key": model.key, "operator_key": o.key, "occurrences": len(p), "positions": list(p)}
            for o, p in operators
        ]
        with self._writing() as connection:
            self._upsert(connection, schema.models, [fields], update=True)
            self._upsert(connection, schema.operators, [_operator_fields(o) for o, _ in operators], update=False)
            connection.execute(schema.model_operators.delete().where(schema.model_operators.c.model_key == model.key))
            self._upsert(connection, schema.model_operators, uses, update=True)

    def record(self, rows: Sequence[Row]) -> None:
        """Store measurements in one transaction; an earlier state of the same measurement is replaced."""
        schedules = {row.schedule.key: row.schedule for row in rows}
        values = [
            {"operator_key": row.operator_key, "schedule_key": row.schedule.key, "model_key": row.model_key}
            | _settings_fields(row.settings, row.device)
            | _measurement_fields(row.measurement, row.complete)
            for row in rows
        ]
        with self._writing() as connection:
            known = [dataclasses.asdict(s) | {"key": key} for key, s in schedules.items()]
            self._upsert(connection, schema.schedules, known, update=False)
            self._upsert(connection, schema.measurements, values, update=True)

    def record_model_timing(
        self, model_key: str, settings: Settings, device: Device, timing: ModelTiming, *, complete: bool
    ) -> None:
        """Store the timing of a whole model; an earlier state of the same timing is replaced."""
        values = {
            "model_key": model_key,
            "before_us": timing.before_us,
            "after_us": timing.after_us,
            "sum_of_operators_us": timing.sum_of_operators_us,
            "unmeasured": list(timing.unmeasured),
            "details": timing.details,
        }
        values |= _settings_fields(settings, device) | _measurement_fields(timing.whole_model, complete)
        with self._writing() as connection:
            self._upsert(connection, schema.model_timings, [values], update=True)

    def find_model(self, key: str) -> StoredModel | None:
        """A model by its key; None where it was never lowered into this dataset."""
        table = schema.models
        with self._reading() as connection:
            row = connection.execute(sa.select(table).where(table.c.key == key)).mappings().first()
        return None if row is None else _model(row)

    def models(self) -> list[StoredModel]:
        """Every model, in the order in which they came in."""
        table = schema.models
        with self._reading() as connection:
            return [_model(r) for r in connection.execute(sa.select(table).order_by(table.c.added_at)).mappings()]

    def model_operators(self, model_key: str) -> list[tuple[Operator, tuple[int, ...]]]:
        """The distinct operators of a model and their positions, in order of first occurrence."""
        uses = schema.model_operators
        query = (
            sa.select(schema.operators, uses.c.positions)
            .join(uses, uses.c.operator_key == schema.operators.c.key)
            .where(uses.c.model_key == model_key)
        )
        with self._reading() as connection:
            found = [(_operator(r), tuple(r["positions"])) for r in connection.execute(query).mappings()]
        return sorted(found, key=lambda item: item[1])

    def measurements_of(self, model_key: str, *, threads: int, cache: str) -> dict[str, StoredMeasurement]:
        """Default-schedule measurements of a model's operators under the settings asked for, by workload key.

        In the state ``model`` only those made inside this model count; hot and cold ones count from anywhere.
        """
        table, uses = schema.measurements, schema.model_operators
        query = (
            sa.select(table)
            .join(uses, uses.c.operator_key == table.c.operator_key)
            .join(schema.schedules, schema.schedules.c.key == table.c.schedule_key)
            .where(uses.c.model_key == model_key, schema.schedules.c.origin == "default")
            .where(table.c.model_key == (model_key if cache == "model" else ""))
            .where(table.c.threads == threads, table.c.cache == cache)
        )
        with self._reading() as connection:
            rows = connection.execute(query).mappings().all()
        return {r["operator_key"]: StoredMeasurement(_settings(r), _measurement(r), r["complete"]) for r in rows}

    def find_model_timing(self, model_key: str, *, threads: int, cache: str) -> StoredTiming | None:
        """The timing of a whole model at one thread count; None where there is none."""
        table = schema.model_timings
        query = sa.select(table).where(
            table.c.model_key == model_key, table.c.threads == threads, table.c.cache == cache
        )
        with self._reading() as connection:
            row = connection.execute(query).mappings().first()
        if row is None:
            return None
        timing = ModelTiming(
            whole_model=_measurement(row),
            before_us=row["before_us"],
            after_us=row["after_us"],
            sum_of_operators_us=row["sum_of_operators_us"],
            unmeasured=tuple(row["unmeasured"]),
            details=dict(row["details"]),
        )
        return StoredTiming(_settings(row), timing, row["complete"])


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")


def _address(url: str) -> sa.URL:
    try:
        address = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise DatasetError(
            f"--db {url!r} is not an address; use sqlite:///FILE or postgresql://USER@HOST/NAME"
        ) from error
    if address.drivername in ("postgresql", "postgres"):
        address = address.set(drivername="postgresql+psycopg")
    if address.get_backend_name() not in ("sqlite", "postgresql"):
        raise DatasetError(f"--db {url!r}: only sqlite and postgresql are supported")
    return address


def _connect_arguments(address: sa.URL) -> dict[str, Any]:
    return {"timeout": _BUSY_SECONDS} if address.get_backend_name() == "sqlite" else {"connect_timeout": 10}


def _check_file(address: sa.URL, *, create: bool) -> None:
    """Refuse what is not a SQLite file before SQLite touches it, and make the folder of a new one."""
    if not address.database or address.database == ":memory:" or address.database.startswith("file:"):
        return
    path = Path(address.database)
    try:
        if path.exists():
            with path.open("rb") as file:
                head = file.read(len(_SQLITE_MAGIC))
            if head and head != _SQLITE_MAGIC:
                raise DatasetError(f"{path} is not a SQLite database; nothing was written to it")
            return
        if not create:
            raise DatasetError(f"there is no dataset {path}; collect something into it first, or give another --db")
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatasetError(f"{path} cannot be opened: {error.strerror}. Give another file with --db") from error


def _prepare_sqlite(engine: sa.Engine, read_only: bool) -> None:
    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions are begun by `_writing`, not by the driver
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys=ON")
        if read_only:
            cursor.execute("PRAGMA query_only=ON")
        else:
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.close()


@contextlib.contextmanager
def _errors(what: str) -> Iterator[None]:
    """Turn the driver's errors into sentences."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        reason = str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error).__name__
        advice = {
            "readonly": "The file or its folder cannot be written to; give another --db.",
            "full": "The disk is full; free some space, the same command then goes on.",
            "malformed": "The file is damaged; restore it from a copy or give another --db.",
            "not a database": "The file is not a dataset; give another --db.",
            "unable to open": "Check that the folder exists and can be written to.",
            "connection failed": "Check that the server runs and the address is right.",
        }
        hint = next((text for word, text in advice.items() if word in reason), "")
        raise DatasetError(f"{what} failed: {reason}. {hint}".strip()) from error


def _operator_fields(operator: Operator) -> dict[str, Any]:
    return dataclasses.asdict(operator) | {"key": operator.key}


def _operator(row: Mapping[str, Any]) -> Operator:
    fields = {f.name: row[f.name] for f in dataclasses.fields(Operator)}
    for name in ("inputs", "params", "outputs"):
        fields[name] = tuple(TensorSpec(tuple(t["shape"]), t["dtype"]) for t in fields[name])
    fields["op_names"] = tuple(fields["op_names"])
    fields["attrs"] = tuple(fields["attrs"])
    return Operator(**fields)


def _model(row: Mapping[str, Any]) -> StoredModel:
    fields = {f.name: row[f.name] for f in dataclasses.fields(StoredModel)}
    return StoredModel(**fields | {"notes": tuple(fields["notes"])})


def _settings_fields(settings: Settings, device: Device) -> dict[str, Any]:
    fields = dataclasses.asdict(settings) | {"device_key": device.key}
    for name in ("core_set", "core_set_effective"):
        fields[name] = ",".join(map(str, fields[name]))
    return fields


def _settings(row: Mapping[str, Any]) -> Settings:
    fields = {f.name: row[f.name] for f in dataclasses.fields(Settings)}
    for name in ("core_set", "core_set_effective"):
        fields[name] = tuple(int(c) for c in fields[name].split(",") if c)
    return Settings(**fields)


def _measurement_fields(measurement: Measurement, complete: bool) -> dict[str, Any]:
    fields = {f.name: getattr(measurement, f.name) for f in dataclasses.fields(Measurement)}
    return fields | {"complete": complete, "measured_at": _now()}


def _measurement(row: Mapping[str, Any]) -> Measurement:
    fields = {f.name: row[f.name] for f in dataclasses.fields(Measurement)}
    return Measurement(**fields | {"samples_us": tuple(tuple(r) for r in fields["samples_us"])})
