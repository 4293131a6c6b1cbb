"""What may import what: a part of the package imports from parts above it in `LAYERS`, never from those below.

Imports of all kinds count: those of the module itself, those inside functions, and those for types only.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "op_profiler"
LAYERS = (
    ("errors", "addresses", "control_groups", "json_text", "shipped", "lean_imports", "options"),
    ("cores", "option_values"),
    ("files", "registry", "c_compiler", "child_processes"),
    ("cache",),
    ("operators",),
    ("compilers.tvm_types", "schedules"),
    ("measure",),
    ("operators.kinds",),
    ("resources.resource",),  # the contract
    ("compilers.pipelines", "compilers.imported_model", "compilers.compiled_model"),  # what compilers take and give
    ("frontends.frontend", "targets.machine"),  # contracts
    ("tuning.candidate", "tuning.task", "tuning.reference", "tuning.tunable"),  # what a search is made of
    ("compilers",),  # the contract; each compiler has a folder further down
    (
        "measure.threads",
        "measure.in_place",
        "measure.stack",
        "measure.kernels",
        "measure.placements",
        "measure.rounds",
        "measure.cache_states",
    ),  # on a machine
    ("tuning",),
    ("parallel.planning",),
    ("parallel.runtime",),
    ("targets",),  # the contract; each kind has a folder further down
    ("tuning.trials.runner",),
    ("frontends",),
    ("targets.cuda.tvm_build",),
    ("compilers.*",),
    ("targets.llvm",),
    ("targets.*",),  # every other folder of a kind
    ("targets.remote",),
    ("targets.open_machine",),
    ("resources", "dataset"),
    ("building",),
    ("prediction", "comparison"),
    ("analysis",),
    ("collection",),
    ("parallel", "parallel.corun", "comparison.peers"),
    ("fleet",),
    ("testing",),
    ("report",),
    ("run",),
    ("cli", "api"),
)
LAYER_OF = {part: number for number, layer in enumerate(LAYERS) for part in layer}
FILES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
    if path != PACKAGE / "__init__.py"
}


def part_of(module: str) -> str:
    """The longest part of `LAYERS` that a module lies in."""
    names = module.split(".")
    for length in range(len(names), 0, -1):
        inside = names[: length - 1]
        named = ".".join(names[:length])
        if named in LAYER_OF:
            return named
        if ".".join([*inside, "*"]) in LAYER_OF and PACKAGE.joinpath(*names[:length]).is_dir():
            return ".".join([*inside, "*"])
    raise LookupError(f"{module} lies in no layer")


def loaded(body: list[ast.stmt]) -> Iterator[str]:
    """Modules of the package that an import of a module with this body loads."""
    for node in body:
        if isinstance(node, ast.If):
            for_types = "TYPE_CHECKING" in ast.unparse(node.test)
            yield from loaded(node.orelse if for_types else node.body + node.orelse)
        elif isinstance(node, ast.Try):
            yield from loaded([*node.body, *node.orelse, *(stmt for handler in node.handlers for stmt in handler.body)])
        elif isinstance(node, ast.Import):
            yield from (name.name.removeprefix("op_profiler.") for name in node.names if "op_profiler." in name.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "op_profiler":
            module = str(node.module).removeprefix("op_profiler").lstrip(".")
            for name in node.names:
                inner = f"{module}.{name.name}".lstrip(".")
                yield inner if inner in FILES else module


def mentioned(tree: ast.Module) -> Iterator[str]:
    """Modules of the package that a module imports anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from loaded([node])


@functools.cache
def trees() -> dict[str, ast.Module]:
    """By module what it says; read when a test asks, since every process of the tests imports this file."""
    return {name: ast.parse(path.read_text()) for name, path in FILES.items()}


@functools.cache
def mentions() -> dict[str, set[str]]:
    """By module all that it imports, at any time or for types only."""
    return {name: {module for module in mentioned(tree) if module in FILES} - {name} for name, tree in trees().items()}


def test_every_module_lies_in_a_layer() -> None:
    left_out = [module for module in FILES if module.split(".")[0] not in {part.split(".")[0] for part in LAYER_OF}]
    assert left_out == []


def test_nothing_is_imported_from_a_layer_below() -> None:
    upward = {
        f"{module} imports {other}"
        for module, others in mentions().items()
        for other in others
        if LAYER_OF[part_of(module)] < LAYER_OF[part_of(other)]
        or (module.split(".")[0] != other.split(".")[0] and LAYER_OF[part_of(module)] == LAYER_OF[part_of(other)])
    }
    assert upward == set()


def test_what_is_not_a_compilers_own_knows_the_contract_only() -> None:
    """Imports of all kinds are looked at: a compiler is chosen by its name."""
    strangers = {
        module: {other for other in others if other.startswith("compilers.") and other.count(".") > 1}
        for module, others in mentions().items()
        if module.count(".") < 2 or not module.startswith("compilers.")
    }
    assert {module: others for module, others in strangers.items() if others} == {}


def in_circles(imports: Mapping[str, set[str]]) -> set[str]:
    """Modules through which circles go, or which lie between two circles."""
    left = {module: others - {module} for module, others in imports.items()}
    while True:  # take away what is in no circle: what imports nothing that is left, and what nothing left imports
        imported = set().union(*left.values())
        circles = {module: others & left.keys() for module, others in left.items() if module in imported}
        circles = {module: others for module, others in circles.items() if others}
        if circles == left:
            return set(left)
        left = circles


def circles(imports: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Groups of modules each of which imports all others of its group, in some steps."""
    involved = in_circles(imports)
    reached: dict[str, set[str]] = {}
    for module in involved:
        reached[module], new = set(), {module}
        while new:
            new = (set().union(*(imports[one] for one in new)) & involved) - reached[module]
            reached[module] |= new
    groups = {frozenset(other for other in reached[one] if one in reached[other]) for one in involved}
    return {group for group in groups if group}


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    assert circles(mentions()) == set()


def test_no_two_classes_have_one_name() -> None:
    names = Counter(node.name for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert {name for name, count in names.items() if count > 1} == set()


class TestSideBySide:
    """Parts of `parallel`, in which imports of all kinds are looked at."""

    def test_planning_can_be_read_and_run_without_tvm_and_without_what_runs_plans(self) -> None:
        plain = ("errors", "option_values", "registry", "operators", "schedules.schedule", "schedules.factors")
        reached = {module for module in FILES if module.startswith("parallel.planning")}
        new = reached
        while new:
            new = set().union(*(mentions()[module] for module in new)) - reached
            reached |= new
        assert {module for module in reached if not module.startswith((*plain, "parallel.planning"))} == set()
        assert {module for module in reached if "tvm" in outside(trees()[module])} == set()

    def test_what_runs_plans_knows_nothing_of_how_they_are_made(self) -> None:
        made = ("parallel.planning.policies", "parallel.planning.costs", "parallel.planning.games", "parallel.corun")
        runtime = [module for module in FILES if module.startswith("parallel.runtime")]
        assert {m: strange for m in runtime if (strange := {o for o in mentions()[m] if o.startswith(made)})} == {}


def outside(tree: ast.Module) -> set[str]:
    """Packages that a module imports, at any time."""
    nodes = list(ast.walk(tree))
    names = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names}
