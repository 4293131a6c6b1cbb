"""The source ``remoteonnx``: ONNX models behind an address, in an archive, in a file, or in the onnx package itself."""

from __future__ import annotations

import functools
from pathlib import Path

from op_profiler.compilers.imported_model import ImportedModel
from op_profiler.errors import ModelError, UnknownNameError, require
from op_profiler.frontends import downloads
from op_profiler.frontends.fingerprints import check_file, fingerprint, hash_files
from op_profiler.frontends.frontend import Frontend, ModelRequest
from op_profiler.lean_imports import package_folder

_ARCHIVES = (".tar.gz", ".tgz")


class RemoteOnnxFrontend(Frontend):
    """The source ``remoteonnx``: graphs of the onnx package by name, and any other ONNX model by address or path."""

    source = "remoteonnx"

    def names(self) -> list[str]:
        """Return the names of the graphs that the onnx package contains."""
        return sorted(_shipped_graphs())

    def default_names(self) -> list[str]:
        """Return the same names as `names`."""
        return self.names()

    def _check(self, request: ModelRequest) -> None:
        require("onnx", "the source remoteonnx")
        name = request.name
        if downloads.is_address(name) or name in _shipped_graphs():
            return
        if "://" in name:
            raise ModelError(f"{name} is no http or https address")
        if not Path(name).exists() and "/" not in name and not name.endswith((".onnx", *_ARCHIVES)):
            hint = "A path or an http(s) address of an .onnx or .tar.gz works too."
            raise UnknownNameError("remoteonnx model", name, _shipped_graphs(), hint)
        check_file(Path(name))

    def fingerprint(self, request: ModelRequest) -> str:
        """Hash the file or the archive, downloaded first if the name is an address."""
        from op_profiler.frontends.importers import onnx as onnx_importer

        self.check(request)
        file = _file_of(request.name)
        files = [file] if file.name.endswith(_ARCHIVES) else onnx_importer.files_of(file)
        return fingerprint(request, packages=("onnx",), files=files)

    def load(self, request: ModelRequest) -> ImportedModel:
        """Download or unpack the file if necessary, and import the graph.

        Raises:
            UnknownNameError, MissingPackageError: as `check`.
            ModelError: the download fails, the archive does not have exactly one graph, or an operator is not
                supported.
        """
        from op_profiler.frontends.importers import onnx as onnx_importer

        self.check(request)
        file = _file_of(request.name)
        return onnx_importer.lower(_graph_in(file) if file.name.endswith(_ARCHIVES) else file, request)


FRONTEND = RemoteOnnxFrontend()


@functools.cache
def _shipped_graphs() -> dict[str, Path]:
    """Return real networks inside the onnx package by name; their weights are constants that the graph computes."""
    folder = package_folder("onnx")
    files = [] if folder is None else sorted((folder / "backend" / "test" / "data" / "light").glob("light_*.onnx"))
    return {file.stem: file for file in files}


def _file_of(name: str) -> Path:
    if downloads.is_address(name):
        file = downloads.download(name)
        check_file(file)
        return file
    return _shipped_graphs().get(name) or Path(name)


def _graph_in(archive: Path) -> Path:
    """Return the only .onnx of an archive.

    Raises:
        ModelError: the archive has none, or several.
    """
    folder = downloads.unpack(archive, hash_files([archive]))
    graphs = sorted(f for f in folder.rglob("*.onnx") if not f.name.startswith("._"))  # macOS adds those
    if len(graphs) != 1:
        found = ", ".join(g.name for g in graphs[:5]) or "none"
        raise ModelError(
            f"{archive} should contain one .onnx file; it contains {found}. Unpack it and give the path of one."
        )
    return graphs[0]
