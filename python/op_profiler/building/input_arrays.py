"""Reads the arrays of ``--inputdata``."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from op_profiler.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

_MOST_BYTES = 4 << 30  # unpacked: a few kB of a zip archive may claim to be any number


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of an .npz file by name; pickles are not read.

    Raises:
        UsageError: the file does not exist, is damaged or not an .npz file, or an array does not consist of numbers.
    """
    import numpy as np

    if not path.is_file():
        raise UsageError(f"--inputdata {path}: there is no such file")
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MOST_BYTES:
                raise ValueError(f"it unpacks to more than {_MOST_BYTES >> 30} GiB")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in file.files}
        for name, array in arrays.items():
            if array.dtype.kind not in "biuf":
                raise ValueError(f"{name!r} holds {array.dtype}, which is no tensor's")
    except _DAMAGES as error:
        reason = str(error).strip() or type(error).__name__
        raise UsageError(
            f"--inputdata {path} is no .npz file of arrays that can be read ({reason}); "
            "write one with numpy.savez(path, NAME=array, ...), a name for every input"
        ) from error
    return arrays


_DAMAGES = (
    *(OSError, ValueError, EOFError, KeyError, TypeError, SyntaxError, OverflowError, MemoryError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError),
)
"""Exceptions of numpy and zipfile for files that are not archives of arrays."""
