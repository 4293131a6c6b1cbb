"""Names to implementations, with nothing imported before it is asked for."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest

from op_profiler.errors import UnknownNameError
from op_profiler.registry import REGISTRIES, Registry, registries

LISTED = """
import sys
from op_profiler.registry import registries
for registry in registries().values():
    for name in registry:
        registry.help(name)
print([name for name in ("numpy", "tvm", "torch", "sqlalchemy", "scipy", "xgboost") if name in sys.modules])
"""


@pytest.mark.parametrize("registry", registries().values(), ids=REGISTRIES)
def test_every_name_leads_to_an_implementation_and_has_a_line_of_help(registry: Registry[Any]) -> None:
    for name in registry:
        assert registry.get(name) is not None
        assert registry.help(name) and "\n" not in registry.help(name) and not registry.help(name).endswith(".")
    module, contract = registry.contract.split(":")
    assert hasattr(importlib.import_module(module), contract)


def test_listing_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", LISTED], capture_output=True, text=True, timeout=900, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.mark.parametrize("registry", registries().values(), ids=REGISTRIES)
def test_an_unknown_name_is_refused_with_the_nearest_and_all_that_there_are(registry: Registry[Any]) -> None:
    name = next(iter(registry))
    wrong = f"{name}x"
    with pytest.raises(UnknownNameError) as caught:
        registry.get(wrong)
    assert f"unknown {registry.noun} {wrong!r}; the nearest known: {name}" in str(caught.value)
    assert f"There are: {', '.join(registry)}." in str(caught.value)


def test_what_the_package_uses_itself_is_found_and_not_listed() -> None:
    frontends = registries()["frontends"]
    assert frontends.get("sample").source == "sample"
    assert "sample" not in frontends and "sample" not in list(frontends)


def test_the_suites_without_pytest_say_what_is_missing() -> None:
    code = "import sys; sys.modules['pytest'] = None; import op_profiler.testing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "op_profiler.testing needs the package 'pytest', which is not installed" in done.stderr
