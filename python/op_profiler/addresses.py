"""Addresses of datasets and models without the passwords in them, for messages and stored text."""

from __future__ import annotations

import re

_PASSWORD = re.compile(r"(?<=://)([^:/?#]*):[^@]*@")  # as SQLAlchemy reads an address
_QUERY = re.compile(r"(://[^?]*)\?.*")  # it may hold a password or a key, too


def without_password(text: str) -> str:
    """Return `text`, a word of a command line, without the password and query part of an address that it contains.

    >>> without_password("--db=postgresql://me:secret@host/times?sslpassword=secret")
    '--db=postgresql://me@host/times'
    """
    return _QUERY.sub(r"\1", _PASSWORD.sub(r"\1@", text))
