"""`Registry`: implementations that a user chooses by name, such as model sources, targets, tuners and policies.

A registry says where an implementation is and what it is for, in one line. It imports an implementation when that is
asked for and not before, so that a command's help lists what there is within a fraction of a second.

A package from outside adds an implementation with an entry point of the group ``op_profiler.<kind>``, in its
``pyproject.toml``::

    [project.entry-points."op_profiler.tuners"]
    my_search = "my_package.search:make_tuner"

`REGISTRIES` lists the kinds. What an implementation has to do is told by the contract that its registry names, and
checked by the suites in `op_profiler.testing`.
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
"""The compiler that is taken where none is named; keys and older rows name none."""

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
"""Every kind, which is also the end of its entry points' group, and where its registry is."""


class Entry(NamedTuple):
    """Where an implementation is, as ``module:attribute``, and what it is for, in one line without a full stop."""

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
    """The implementations of one kind by name. Iterating gives the names: those built in as they are declared, then
    those of other packages, sorted.

    Args:
        kind: one of `REGISTRIES`.
        noun: what messages call one of them, such as ``model source``.
        contract: the public type that all of them are of, as ``module:attribute``.
        entries: those built in.
        unlisted: more of them, which the package uses itself: `get` knows them, and nobody is told of them.
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
        """Those of this package, as they are declared."""
        return self._entries

    def help(self, name: str) -> str:
        """What it is for, in one line; of another package's, what that package says of itself, and its name.

        Raises:
            UnknownNameError: there is none of this name.
        """
        built_in = self._own.get(name)
        if built_in is not None:
            return built_in.help
        self.check(name)
        plugin = self._plugins[name]
        return f"{plugin.distribution.metadata.json.get('summary', 'not described')} (of {plugin.package})"

    def check(self, name: str, hint: str = "") -> None:
        """Refuse a name that is not known; imports nothing.

        Args:
            hint: a sentence that is added to the message.

        Raises:
            UnknownNameError: there is none of this name; lists those that there are, the nearest first.
        """
        if name not in self:
            known = f"There are: {', '.join(self)}."
            raise UnknownNameError(self.noun, name, self, f"{known} {hint}" if hint else known)

    def get(self, name: str) -> T:
        """The implementation of a name; imports it.

        Raises:
            UnknownNameError: there is none of this name.
            OpProfilerError: it is another package's, which cannot be imported; says which and why.
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
        """Name and implementation of all that can be imported. What cannot is another package's, and is logged."""
        for name in self:
            try:
                yield name, self.get(name)
            except OpProfilerError as error:
                if name in self._own:
                    raise
                _LOG.warning("left out: %s", error)

    @functools.cached_property
    def _plugins(self) -> dict[str, _Plugin]:
        """What other packages offer by names that are free; what they offer by others is logged, once."""
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
    """The registry of one of `REGISTRIES`."""
    module, attribute = REGISTRIES[kind].split(":")
    found: Registry[Any] = getattr(importlib.import_module(module), attribute)
    return found


def registries() -> dict[str, Registry[Any]]:
    """The registry of every kind."""
    return {kind: registry_of(kind) for kind in REGISTRIES}


@functools.cache
def _plugins_by_kind() -> dict[str, list[_Plugin]]:
    """The entry points of all packages that are installed. A package that cannot be read is logged and left out."""
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
