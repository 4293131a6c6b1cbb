"""`Part`: the base of all data of a page."""

from __future__ import annotations

import msgspec


class Part(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A piece of a page; fields with their default value are not written."""
