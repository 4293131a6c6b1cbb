"""`Dataset`: stores and reads devices, models, operators and measurements in one database."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select, update

from op_profiler.compilers.imported_model import Agreement
from op_profiler.dataset import convert, coruns, keys, queries, schema
from op_profiler.dataset.database import OpenDatabase
from op_profiler.dataset.engine import open_engine, utc_now
from op_profiler.dataset.quality import failure, keep_failures, select_failures, upsert_better
from op_profiler.dataset.row import Corun, CorunMember, Failure, Model, Row, StoredMeasurement, StoredTiming
from op_profiler.dataset.statements import upsert
from op_profiler.measure.measurement import Cache, Device, ModelTiming, Settings
from op_profiler.operators.layers import CallLayers
from op_profiler.operators.locations import CallLocations, columns_of
from op_profiler.operators.operator import Operator
from op_profiler.schedules.schedule import Origin, Schedule

if TYPE_CHECKING:
    import pandas as pd

Positions = tuple[int, ...]


class Dataset(OpenDatabase):
    """An open dataset; use `Dataset.open` to open one.

    Several processes may open the same dataset and write to it at once. A `Dataset` object belongs to one thread and
    does not survive a fork: each thread and each process opens its own. Every method that writes is a transaction,
    unless it is called inside `transaction`. Every method raises DatasetError, with the command that helps, if the
    database fails.

    >>> from op_profiler import Dataset, collect
    >>> report = collect("mlp", threads=[1], db="sqlite:///mlp.db")
    >>> with Dataset.open("sqlite:///mlp.db", read_only=True) as dataset:
    ...     rows = dataset.to_pandas("anchor = 'nn.softmax'")
    >>> rows.outputs[0]
    [{'shape': [1, 10], 'dtype': 'float32'}]
    """

    @classmethod
    def open(cls, url: str, *, create: bool = True, read_only: bool = False, was_open: bool = False) -> Dataset:
        """Open a dataset and upgrade it to the newest version.

        Args:
            url: ``PATH.db``, ``sqlite:///PATH`` or ``postgresql://USER@HOST/NAME``.
            create: create the folder, the file and the tables if they are missing; otherwise they must exist.
            read_only: reject every write, and create nothing.
            was_open: whether this process or its parent had the dataset open before; if so, wait for a server that
                restarts.

        Raises:
            UsageError: the URL is not the address of a supported database.
            MissingPackageError: the dataset is in PostgreSQL, and psycopg is not installed.
            DatasetError: the database cannot be opened, was not created by op_profiler, or is of a newer version.
        """
        return cls(*open_engine(url, create=create, read_only=read_only, was_open=was_open))

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Writing

    def add_device(self, device: Device) -> None:
        """Store a device; for a stored device, update the fields that may change (clock, memory, properties)."""
        changing = ("clock_mhz", "memory_bytes", "properties")
        with self.transaction() as connection:
            upsert(connection, schema.devices, convert.distinct([device]), replace=changing)

    def add_model(
        self,
        *,
        key: str,
        name: str,
        source: str,
        batch_size: int,
        precision: str,
        executor: str,
        target: str,
        notes: Sequence[str] = (),
        device_key: str | None = None,
        base_key: str | None = None,
        asked: Iterable[str] = (),
        label: str = "",
        recipe: Mapping[str, Any] | None = None,
        reads: Sequence[Sequence[int]] | None = None,
        agreement: Agreement | None = None,
    ) -> None:
        """Store a lowered model without its operators; `add_operators` stores these.

        Args:
            key: fingerprint of the model's content and of everything that changes what the compiler generates from it.
            device_key: the device that the model was lowered for, which must be stored; measurements on other devices
                are then never used for this model.
            base_key, asked, label, recipe, reads: see `Model`; if `recipe` or `reads` is None, the stored value is
                kept.
            agreement: agreement of the model's outputs with those of its own framework; None keeps the stored value.
        """
        row = {
            "key": key,
            "name": name,
            "source": source,
            "batch_size": batch_size,
            "precision": precision,
            "executor": executor,
            "target": target,
            "notes": list(notes),
            "device_key": device_key,
            "base_key": base_key,
            "asked": sorted(asked),
            "label": label,
            "recipe": recipe,
            "reads": reads,
            "extracted": False,
            "added_at": utc_now(),
            **(dataclasses.asdict(agreement) if agreement is not None else {}),
        }
        kept = {"key", "extracted", "added_at"}.union(name for name in ("recipe", "reads") if row[name] is None)
        renewed = [column for column in row if column not in kept]
        with self.transaction() as connection:
            upsert(connection, schema.models, [row], replace=renewed)

    def add_operators(
        self,
        model_key: str,
        operators: Iterable[tuple[Operator, Positions]],
        schedules: Mapping[str, Schedule] | None = None,
        launches: Mapping[str, Sequence[Mapping[str, Sequence[int]]]] | None = None,
        code: Mapping[str, str] | None = None,
        locations: Mapping[str, CallLocations] | None = None,
    ) -> None:
        """Replace the stored operators of a model by these in one transaction, and mark the model as `extracted`.

        Args:
            operators: each distinct operator once, with the positions at which the model calls it, counted from 0.
            schedules: the known schedules that the build of the model uses, by workload key.
            launches: grid and block of each launch on a GPU, by workload key.
            code: code of the kernel for people to read (TVMScript), by workload key.
            locations: the known locations of each call in the user's model, by workload key.
        """
        operators = list(operators)
        known = {"launches": launches or {}, "code": code or {}}
        links = [
            {
                "model_key": model_key,
                "operator_key": operator.key,
                "name": operator.name,
                "occurrences": len(positions),
                "positions": positions,
                "schedule_key": schedules[operator.key].key if schedules and operator.key in schedules else None,
                **{name: by_key.get(operator.key) for name, by_key in known.items()},
                **columns_of((locations or {}).get(operator.key, ())),
            }
            for operator, positions in operators
        ]
        table = schema.model_operators
        with self.transaction() as connection:
            distinct = convert.distinct(operator for operator, _ in operators)
            upsert(connection, schema.operators, distinct, replace=("flops", "bytes_read", "bytes_written"))
            upsert(connection, schema.schedules, convert.distinct((schedules or {}).values()))
            connection.execute(delete(table).where(table.c.model_key == model_key))
            if links:
                connection.execute(table.insert(), links)
            connection.execute(update(schema.models).where(schema.models.c.key == model_key).values(extracted=True))

    def add_anchor(self, operator: Operator) -> None:
        """Store an operator without linking it to a model."""
        with self.transaction() as connection:
            upsert(connection, schema.operators, convert.distinct([operator]))

    def record(self, row: Row) -> None:
        """Store one measurement; see `record_all`."""
        self.record_all([row])

    def record_all(self, rows: Iterable[Row], *, replace: bool = False) -> set[str]:
        """Store measurements and failures in one transaction.

        A stored measurement is replaced by a better one, or by a newer one of the same quality. A complete time is
        better than a checkpoint, and an undisturbed, converged time is better than other times. A failure never
        replaces a complete time. `quality.rank` defines the order.

        Args:
            replace: the measurements were requested again, so every complete time replaces a stored one.

        Returns:
            Keys (`keys.measurement_key`) of the measurements that were stored.
        """
        rows = list(rows)
        now, newest = utc_now(), all(row.measured_at is None for row in rows)
        columns = [convert.row_columns(row) | {"measured_at": row.measured_at or now} for row in rows]
        failures = [c | {"machine_state": row.machine_state} for c, row in zip(columns, rows)]
        with self.transaction() as connection:
            upsert(connection, schema.devices, convert.distinct(row.device for row in rows))
            upsert(connection, schema.schedules, convert.distinct(row.schedule for row in rows))
            upsert(connection, schema.settings, convert.distinct(row.settings for row in rows))
            stored = upsert_better(connection, schema.measurements, columns, replace=replace, newest=newest)
            keep_failures(connection, failures, newest=newest)
        return stored

    def record_model_timing(
        self,
        model_key: str,
        settings: Settings,
        device: Device,
        timing: ModelTiming,
        *,
        complete: bool = True,
        replace: bool = False,
        machine_state: Mapping[str, Any] | None = None,
        project_revision: str | None = None,
        user_revision: str | None = None,
        measured_at: str | None = None,
        run_id: str | None = None,
    ) -> bool:
        """Store the timing of a whole model; an existing timing is replaced by the rule of `record_all`.

        Args:
            complete: False for a checkpoint of a measurement that is still running.
            replace: see `record_all`.
            machine_state, measured_at, run_id: see `Row`.
            project_revision, user_revision: see `StoredTiming`.

        Returns:
            Whether the timing was stored; if so, store the operators of the same run with ``replace=True``.
        """
        row = convert.timing_columns(timing) | {
            "key": keys.timing_key(model_key, device.key, settings),
            "model_key": model_key,
            "settings_key": settings.key,
            "device_key": device.key,
            "complete": complete,
            "measured_at": measured_at or utc_now(),
            "run_id": run_id,
            "project_revision": project_revision,
            "user_revision": user_revision,
        }
        with self.transaction() as connection:
            upsert(connection, schema.devices, convert.distinct([device]))
            upsert(connection, schema.settings, convert.distinct([settings]))
            newest = measured_at is None
            stored = upsert_better(connection, schema.model_timings, [row], replace=replace, newest=newest)
            keep_failures(connection, [row | {"machine_state": machine_state}], newest=newest)
        return bool(stored)

    def record_corun(
        self,
        device: Device,
        members: Sequence[CorunMember],
        *,
        load_before: float | None = None,
        load_after: float | None = None,
        foreign_load: bool = False,
    ) -> None:
        """Store the times of operators that ran side by side.

        These times replace stored times of the same group under the same settings, unless the stored times are better:
        without a failure, or without background load.

        Args:
            load_before, load_after, foreign_load: see `Corun`.
        """
        corun = Corun(
            device_key=device.key,
            members=tuple(members),
            load_before=load_before,
            load_after=load_after,
            foreign_load=foreign_load,
            measured_at=utc_now(),
        )
        with self.transaction() as connection:
            upsert(connection, schema.devices, convert.distinct([device]))
            coruns.store(connection, corun)

    # Reading

    def find_model(self, key: str) -> Model | None:
        """Return the model with a key; None if there is none. Until it is `extracted`, it may lack some operators."""
        rows = self.rows(select(schema.models).where(schema.models.c.key == key))
        return convert.build(Model, rows[0]) if rows else None

    def models(self, base_key: str | None = None) -> list[Model]:
        """Return all models, sorted by name.

        Args:
            base_key: return only models with this base key, which differ only in the schedule records of their builds;
                None returns all models.
        """
        table = schema.models
        query = select(table).order_by(table.c.name, table.c.added_at)
        if base_key is not None:
            query = query.where(table.c.base_key == base_key)
        return [convert.build(Model, row) for row in self.rows(query)]

    def model_operators(self, model_key: str) -> list[tuple[Operator, Positions]]:
        """Return the operators of a model with the positions of their calls, in the order of their first call."""
        found = [
            (convert.build(Operator, {**row, "name": row["name_in_model"]}), tuple(row["positions"]))
            for row in self.rows(queries.operators(model_key))
        ]
        return sorted(found, key=lambda item: item[1][:1])

    def launches_of(self, model_key: str) -> dict[str, list[dict[str, list[int]]]]:
        """Return grid and block of each GPU launch by workload key, for operators of a model with known launches."""
        return {r["operator_key"]: r["launches"] for r in self.rows(queries.known(model_key, "launches"))}

    def templates_of(self, model_key: str) -> dict[str, str]:
        """Return the templates of the known schedules that a model's build uses, by workload key of the operator."""
        return {r["operator_key"]: r["template"] for r in self.rows(queries.templates(model_key))}

    def layers_of(self, model_key: str) -> dict[str, CallLayers]:
        """Return the layers of each call by workload key, for operators of a model with known layers."""
        return {r["operator_key"]: r["layers"] for r in self.rows(queries.known(model_key, "layers"))}

    def find_operator(self, key: str) -> Operator | None:
        """Return an operator by its workload key; None if the dataset lacks it."""
        rows = self.rows(select(schema.operators).where(schema.operators.c.key == key))
        return convert.build(Operator, rows[0]) if rows else None

    def operators_around(self, anchors: Collection[str]) -> list[Operator]:
        """Return all operators whose anchor is in `anchors`."""
        rows = self.rows(select(schema.operators).where(schema.operators.c.anchor.in_(sorted(anchors))))
        return [convert.build(Operator, row) for row in rows]

    def find_device(self, key: str) -> Device | None:
        """Return a device by its key; None if the dataset lacks it."""
        rows = self.rows(select(schema.devices).where(schema.devices.c.key == key))
        return convert.build(Device, rows[0]) if rows else None

    def find_measurement(
        self, operator_key: str, *, schedule: Schedule, settings: Settings, device_key: str, model_key: str = ""
    ) -> StoredMeasurement | None:
        """Return the measurement with these keys, complete or not; None if there is none. Of `settings`, only requested
        values are compared."""
        key = keys.measurement_key(operator_key, schedule.key, device_key, settings, model_key)
        rows = self.rows(queries.measurements().where(schema.measurements.c.key == key))
        return convert.stored_measurement(rows[0]) if rows else None

    def measurements_of(
        self,
        model_key: str,
        *,
        threads: int,
        cache: Cache,
        resources: Mapping[str, Any] | None = None,
        origin: Origin | None = None,
    ) -> dict[str, StoredMeasurement]:
        """Return one measurement per measured operator of a model, by workload key; co-runs are not included.

        With the cache state ``model``, the operators were measured inside this model; with any other cache state,
        outside of models, at the model's precision and with its executor. Of several measurements of an operator, the
        newest complete one is returned, or else the newest checkpoint.

        Args:
            threads, cache: requested values of `Settings`.
            resources: requested values by their names in `Settings`; without ``core_set``, any core set.
            origin: origin of the schedules; None for the schedules that the build of this model uses.
        """
        query = queries.measurements_of(model_key, threads, cache, resources, origin)
        return {row["operator_key"]: convert.stored_measurement(row) for row in self.rows(query)}

    def trials_of(
        self, operator_key: str, *, template: str, device_key: str, threads: int, cache: Cache
    ) -> list[StoredMeasurement]:
        """Return the trials of a template for an operator on a device, except failures that the machine caused."""
        query = queries.trials_of(operator_key, template, device_key, threads, cache)
        return [convert.stored_measurement(row) for row in self.rows(query)]

    def find_model_timing(
        self, model_key: str, *, threads: int, cache: Cache, resources: Mapping[str, Any] | None = None
    ) -> StoredTiming | None:
        """Return the newest complete timing of a whole model, or else its newest checkpoint, or None.

        Args:
            resources: as for `measurements_of`.
        """
        rows = self.rows(queries.model_timing(model_key, threads, cache, resources))
        return convert.stored_timing(rows[0]) if rows else None

    def failures(self, model_key: str | None = None) -> list[Failure]:
        """Return the failures of one model (None: of all models), newest first, even if another run measured a time."""
        return [failure(row) for row in self.rows(select_failures(model_key))]

    def coruns(self, device_key: str | None = None) -> list[Corun]:
        """Return the groups of operators that ran side by side, oldest first.

        Args:
            device_key: return only groups on this device; None returns all groups.
        """
        return list(coruns.of(self.rows(coruns.select_members(device_key))))

    def to_pandas(self, where: str | None = None, *, table: str = "measurements") -> pd.DataFrame:
        """Return a flat table as a DataFrame with the columns of ``op-profiler export --columns``.

        Nested values (layers, inputs, samples, ...) are lists and dicts.

        Args:
            where: condition in SQL over the columns, such as ``model_source = 'sample' and not scaffolding``.
            table: ``measurements``, or ``coruns``: operators that ran side by side.

        Raises:
            MissingPackageError: pandas is not installed.
            UsageError: the condition is invalid, or the table does not exist.
        """
        from op_profiler.dataset.frame import flat_frame

        return flat_frame(self, where, table)

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each table, and the numbers of ``complete`` and ``failed`` measurements."""
        return dict(self.rows(queries.counts())[0])
