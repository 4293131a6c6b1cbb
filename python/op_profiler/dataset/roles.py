"""Grants roles the right to read or write a dataset in PostgreSQL."""

from __future__ import annotations

import secrets
from typing import Any

from sqlalchemy import Connection, text

from op_profiler.dataset import schema
from op_profiler.dataset.address import parse_url
from op_profiler.dataset.store import Dataset
from op_profiler.errors import UsageError

_READS, _WRITES = "SELECT", "SELECT, INSERT, UPDATE, DELETE"


def allow(db: str, role: str, *, writes: bool) -> str:
    """Grant a role the right to read a dataset, or to read and write it; a missing role is created.

    A role that writes cannot change the tables: they belong to the role that created them, and only that role can
    upgrade them. If a newer version adds tables, call this function again.

    Args:
        db: address of the dataset, with the name of a role that may create roles.
        role: name of the role that gets the rights.
        writes: whether the role may also write.

    Returns:
        The dataset's address for the role; it contains the new password if this call created the role.

    Raises:
        UsageError: the dataset is not in PostgreSQL.
        DatasetError: `db` contains no dataset, or its role may not create roles.
    """
    url = parse_url(db)
    if url.get_backend_name() != "postgresql":
        raise UsageError(f"{db} is a file, whose rights are the folder's; roles are for postgresql://USER@HOST/NAME")
    password: str | None = None
    with Dataset.open(db, create=False) as dataset, dataset.transaction() as connection:
        name = connection.dialect.identifier_preparer.quote_identifier(role)
        if not connection.execute(text("SELECT 1 FROM pg_roles WHERE rolname = :role"), {"role": role}).first():
            password = secrets.token_urlsafe(24)
            # The server's log may keep statements: it gets the password's hash.
            connection.exec_driver_sql(f"CREATE ROLE {name} LOGIN PASSWORD '{_hashed(connection, role, password)}'")
        place = connection.execute(text("SELECT quote_ident(current_schema())")).scalar_one()
        connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA {place} TO {name}")
        mine = connection.execute(text("SELECT current_user = :role"), {"role": role}).scalar_one()
        for table in schema.metadata.sorted_tables:
            if not mine:  # what it may do no more; to the role that made the tables they belong in any case
                connection.exec_driver_sql(f"REVOKE ALL ON {table.name} FROM {name}")
            rights = _WRITES if writes and table is not schema.schema_version else _READS
            connection.exec_driver_sql(f"GRANT {rights} ON {table.name} TO {name}")
    shown = url.set(drivername="postgresql", username=role, password=password)
    return shown.render_as_string(hide_password=False)


def _hashed(connection: Connection, role: str, password: str) -> str:
    """Return a password's SCRAM-SHA-256 hash as the server stores it; it contains no characters to be escaped."""
    driver: Any = connection.connection.driver_connection
    return str(driver.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode())
