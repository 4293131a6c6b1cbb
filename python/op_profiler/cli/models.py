"""``op-profiler models``."""

from __future__ import annotations

from typing import Annotated

import typer

from op_profiler import json_text
from op_profiler.cli import options
from op_profiler.frontends import FRONTENDS

EXAMPLES = """Examples:

op-profiler models

op-profiler models --modelsource transformers --json
"""


def models(
    modelsource: Annotated[str | None, typer.Option(help="List only the models of this source: {frontends}.")] = None,
    as_json: options.Json = False,
) -> None:
    """List the models of each source; an asterisk marks the models that collect measures by default."""
    found = {modelsource: FRONTENDS.get(modelsource)} if modelsource else dict(FRONTENDS.available())
    if as_json:
        print(json_text.dumps({source: frontend.names() for source, frontend in found.items()}))
        return
    for source, frontend in found.items():
        defaults = set(frontend.default_names())
        print(f"{source}: {FRONTENDS.help(source)}")
        for name in frontend.names():
            print(f"  {name}{' *' if name in defaults else ''}")
