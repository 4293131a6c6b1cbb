"""`Registry`: implementations that a user selects by name, such as model sources, targets, tuners and policies.

A registry stores where an implementation is, and describes it in one line. It imports an implementation only when it is
used, so that the help of a command can list all names within a fraction of a second.

Another package adds an implementation with an entry point of the group ``op_profiler.<kind>`` in its
``pyproject.toml``::

    [project.entry-points."op_profiler.tuners"]
    my_search = "my_package.search:make_tuner"

`REGISTRIES` lists the kinds. The contract of a registry defines what an implementation must provide; the test suites in
`op_profiler.testing` check it.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from op_profiler.errors import OpProfilerError, UnknownNameError

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

T = TypeVar("T")
_GROUP = "op_profiler."
_LOG = logging.getLogger(__name__)

DEFAULT_COMPILER = "relay"
"""Compiler that is used by default; keys and older rows do not contain its name."""

REGISTRIES = {
    "frontends": "op_profiler.frontends:FRONTENDS",
    "compilers": "op_profiler.compilers:COMPILERS",
    "targets": "op_profiler.targets:TARGETS",
    "templates": "op_profiler.compilers.relay.templates:TEMPLATES",
    "tuners": "op_profiler.tuning.tuners:TUNERS",
    "formats": "op_profiler.dataset.formats:FORMATS",
    "resources": "op_profiler.resources:RESOURCES",
    "policies": "op_profiler.parallel.planning.policies:POLICIES",
    "peers": "op_profiler.comparison.peers:PEERS",
    "predictors": "op_profiler.prediction.latency:PREDICTORS",
    "library_predictors": "op_profiler.prediction.library:PREDICTORS",
    "public_sets": "op_profiler.prediction.sets:SETS",
}
"""Locations of the registries, by kind; the kind is also the suffix of the group of entry points."""


class Entry(NamedTuple):
    """Location of an implementation, as ``module:attribute``, and its description in one line without a full stop."""

    path: str
    help: str


class _Plugin(NamedTuple):
    """An entry point of another package."""

    point: EntryPoint
    distribution: Distribution

    @property
    def package(self) -> str:
        return f"{self.distribution.metadata['Name']} {self.distribution.version}"


class Registry(Generic[T]):
    """The implementations of one kind by name.

    Iterating yields the names: first the built-in ones in the order of their declaration, then those of other packages,
    sorted.

    Args:
        kind: one of `REGISTRIES`.
        noun: name of one implementation in messages, such as ``model source``.
        contract: the public type of all implementations, as ``module:attribute``.
        entries: the built-in implementations.
        unlisted: further implementations for internal use: `get` returns them, but they are not listed.
    """

    def __init__(
        self,
        kind: str,
        noun: str,
        contract: str,
        entries: Mapping[str, Entry],
        unlisted: Mapping[str, Entry] | None = None,
    ) -> None:
        self.kind, self.noun, self.contract = kind, noun, contract
        self._entries = dict(entries)
        self._own = {**entries, **(unlisted or {})}

    def __iter__(self) -> Iterator[str]:
        return iter((*self._entries, *sorted(self._plugins)))

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._plugins

    @property
    def built_in(self) -> Mapping[str, Entry]:
        """Entries of this package, in the order of their declaration."""
        return self._entries

    def help(self, name: str) -> str:
        """Return the one-line description of an implementation; if another package offers it, the package's summary.

        Raises:
            UnknownNameError: there is no implementation with this name.
        """
        built_in = self._own.get(name)
        if built_in is not None:
            return built_in.help
        self.check(name)
        plugin = self._plugins[name]
        return f"{plugin.distribution.metadata.json.get('summary', 'not described')} (of {plugin.package})"

    def check(self, name: str, hint: str = "") -> None:
        """Check that a name is known, without importing its implementation.

        Args:
            hint: a sentence that is added to the error message.

        Raises:
            UnknownNameError: there is no implementation with this name; the message lists the names, the most similar
                first.
        """
        if name not in self:
            known = f"There are: {', '.join(self)}."
            raise UnknownNameError(self.noun, name, self, f"{known} {hint}" if hint else known)

    def get(self, name: str) -> T:
        """Import and return the implementation with a name.

        Raises:
            UnknownNameError: there is no implementation with this name.
            OpProfilerError: it belongs to another package and cannot be imported; the message names the package and the
                error.
        """
        plugins = self._plugins  # looked at first: what one says about names that are taken is said to all who ask
        built_in = self._own.get(name)
        if built_in is not None:
            module, attribute = built_in.path.split(":")
            implementation: T = getattr(importlib.import_module(module), attribute)
            return implementation
        self.check(name)
        try:
            implementation = plugins[name].point.load()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise OpProfilerError(
                f"the {self.noun} {name!r} of the package {plugins[name].package} cannot be loaded: {reason}"
            ) from error
        return implementation

    def available(self) -> Iterator[tuple[str, T]]:
        """Yield the names and implementations that can be imported; import errors of other packages are logged."""
        for name in self:
            try:
                yield name, self.get(name)
            except OpProfilerError as error:
                if name in self._own:
                    raise
                _LOG.warning("left out: %s", error)

    @functools.cached_property
    def _plugins(self) -> dict[str, _Plugin]:
        """Return the entry points of other packages whose names are free; those with taken names are logged once."""
        plugins: dict[str, _Plugin] = {}
        for plugin in sorted(_plugins_by_kind().get(self.kind, ()), key=lambda plugin: plugin.package):
            name = plugin.point.name
            taken = "is built in" if name in self._own else None
            if name in plugins:
                taken = f"the package {plugins[name].package} offers too"
            if taken is None:
                plugins[name] = plugin
            else:
                text = "the package %s offers the %s %r, which %s: that of the package is not used"
                _LOG.warning(text, plugin.package, self.noun, name, taken)
        return plugins


def registry_of(kind: str) -> Registry[Any]:
    """Return the registry of a kind, which is one of the keys of `REGISTRIES`."""
    module, attribute = REGISTRIES[kind].split(":")
    found: Registry[Any] = getattr(importlib.import_module(module), attribute)
    return found


def registries() -> dict[str, Registry[Any]]:
    """Return the registries of all kinds."""
    return {kind: registry_of(kind) for kind in REGISTRIES}


@functools.cache
def _plugins_by_kind() -> dict[str, list[_Plugin]]:
    """Return the entry points of all installed packages. A package that cannot be read is logged and left out."""
    from importlib import metadata

    found: dict[str, list[_Plugin]] = {}
    seen: set[str] = set()  # a package may be found twice on the path; the first is the one that is imported
    for distribution in metadata.distributions():
        try:
            if f"[{_GROUP}" not in (distribution.read_text("entry_points.txt") or ""):
                continue
            name = distribution.metadata["Name"]
            points = [] if name in seen else [p for p in distribution.entry_points if p.group.startswith(_GROUP)]
            seen.add(name)
        except Exception as error:
            _LOG.warning("the entry points of a package cannot be read: %s: %s", type(error).__name__, error)
            continue
        for point in points:
            kind = point.group.removeprefix(_GROUP)
            if kind in REGISTRIES:
                found.setdefault(kind, []).append(_Plugin(point, distribution))
            else:
                text = "the package %s offers %r as %s, which is no kind; there are: %s"
                _LOG.warning(text, name, point.name, point.group, ", ".join(REGISTRIES))
    return found
