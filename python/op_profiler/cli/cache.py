"""``op-profiler cache``."""

from __future__ import annotations

from typing import Annotated

import typer

from op_profiler import json_text
from op_profiler.cli import options
from op_profiler.errors import UsageError

EXAMPLES = """Examples:

op-profiler cache                  (contents, sizes and purposes)

op-profiler cache --clear          (remove built and lowered models; they are built again when needed)

op-profiler cache --clear --all    (remove everything, including downloads)

OP_PROFILER_CACHE sets the folder. OP_PROFILER_CACHE_GIB sets the largest size of all built and lowered models (default:
8; 0 stores none).
"""


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove built and lowered models.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="With --clear: also remove everything else, such as downloads.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """List the contents of the cache folder, or remove them."""
    from op_profiler import cache as kept
    from op_profiler.cache import cache_folder

    if everything and not clear:
        raise UsageError("--all needs --clear")
    limit = kept.limit_bytes()
    removed = kept.entries(kept.KINDS if everything else kept.MODELS) if clear else []
    for entry in removed:
        kept.remove(entry)
    left = kept.entries()
    if as_json:
        print(
            json_text.dumps(
                {
                    "folder": cache_folder(),
                    "limit_bytes": limit,
                    "entries": left,
                    "removed": removed,
                },
                indent=1,
            )
        )
        return
    print(cache_folder())
    for kind, what in kept.KINDS.items():
        mine = [entry for entry in left if entry.kind == kind]
        if not mine:
            continue
        of = f" of {_size(limit)}" if kind in kept.LIMITED else ""
        print(f"  {what}: {len(mine)}, {_size(sum(entry.size_bytes for entry in mine))}{of}")
        for entry in reversed(mine):
            print(f"    {_size(entry.size_bytes):>9}  {entry.used.astimezone():%Y-%m-%d %H:%M}  {entry.title}")
    if clear:
        print(f"removed {len(removed)} entries, {_size(sum(entry.size_bytes for entry in removed))}")


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB" if size_bytes >= 2**30 else f"{size_bytes / 2**20:.1f} MiB"
