"""`Part`: the base of all data of a page."""

from __future__ import annotations

import msgspec


class Part(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Base class of the data of a page; fields that have their default value are left out of the JSON."""
