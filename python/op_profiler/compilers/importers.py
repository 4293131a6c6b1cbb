"""Who reads a model for a compiler: whom the compiler chooses, or one that the user names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from op_profiler.compilers.compiler import Compiler

AUTO = "auto"


def check_importer(name: str, compiler: Compiler) -> None:
    """Refuse what a compiler has not got.

    Raises:
        UsageError: names what it may be.
    """
    if name in compiler.importers:
        return
    if len(compiler.importers) == 1:
        raise UsageError(f"--importer {name}: the compiler {compiler.name} has one importer; leave --importer out")
    raise UnknownNameError("importer", name, compiler.importers)
