"""The registry of tuners, which are the strategies of the search for schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.registry import Entry, Registry

if TYPE_CHECKING:
    from op_profiler.tuning.tuners.tuner import TunerFactory

_HERE = "op_profiler.tuning.tuners"
_COMPILERS = "op_profiler.compilers"
_AUTOTVM = f"{_COMPILERS}.relay.tuners"

TUNERS: Registry[TunerFactory] = Registry(
    "tuners",
    "tuner",
    f"{_HERE}.tuner:TunerFactory",
    {
        "trees": Entry(f"{_HERE}.trees:trees", "boosted trees over knobs and orders of loops, for every compiler"),
        "random": Entry(f"{_HERE}.drawn:random", "points drawn at random, for every compiler"),
        "gridsearch": Entry(f"{_HERE}.drawn:grid", "one point after the other, for every compiler"),
        "xgb_knob": Entry(f"{_AUTOTVM}.xgboost:knob", "simulated annealing over boosted trees on the knobs"),
        "xgb": Entry(f"{_AUTOTVM}.xgboost:itervar", "like xgb_knob, but on features of the loops"),
        "xgb-rank": Entry(f"{_AUTOTVM}.xgboost:rank", "like xgb, but trained to rank"),
        "xgb_itervar": Entry(f"{_AUTOTVM}.xgboost:itervar", "another name of xgb"),
        "xgb_curve": Entry(f"{_AUTOTVM}.xgboost:curve", "like xgb, but on the loops' reuse curves"),
        "ga": Entry(f"{_AUTOTVM}.autotvm:genetic", "a genetic algorithm"),
        "droplet": Entry(f"{_AUTOTVM}.autotvm:droplet", "descent along the knobs (Droplet Search); may end early"),
    },
)


def tuners_of(compiler: str) -> list[str]:
    """Return the names of the tuners that support a compiler: all except those in the folder of another compiler."""
    paths = {name: entry.path for name, entry in TUNERS.built_in.items()}
    others = {name for name, path in paths.items() if path.startswith(f"{_COMPILERS}.")}
    own = {name for name in others if paths[name].startswith(f"{_COMPILERS}.{compiler}.")}
    return [name for name in TUNERS if name not in others - own]
