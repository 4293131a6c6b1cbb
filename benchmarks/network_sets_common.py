"""Which networks are of the development set, and which may still give a figure of the test set.

Networks of zoos are of the development set if their family is among `LOOKED_AT`. Drawn networks
(``collector/drawn_networks``) are recognised by their name, and their seed decides. A test seed is spent once its error
was looked at: the result of `SHOWN_BY` then has it, with the date and the processor, and its network is of the
development set on every processor.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common import RESULTS, ROOT, measured_on, store_table, stored_tables

sys.path.insert(0, str(ROOT / "collector"))
from drawn_networks.seeds import DEVELOPMENT, TEST, kind_of_seed, seed_of

if TYPE_CHECKING:
    from op_profiler.prediction.latency.examples import Examples

SHOWN_BY, SPENT = "held_out_models", "spent_seeds"
"""The benchmark that shows errors of test seeds, and the table of its result that records them."""
LOOKED_AT = frozenset(
    (
        *("alexnet", "bert", "bninception", "convnext", "dcgan", "densenet", "efficientnet", "electra", "googlenet"),
        *("gpt", "gru", "inception_v3", "light_shufflenet", "light_zfnet", "lstm", "mlp", "mnasnet", "mobilebert"),
        *("mobilenet", "mobilenet_v2", "mobilenet_v3", "nasnetamobile", "randwire", "regnet", "resnet", "resnet3d"),
        *("resnext", "rnn", "shufflenet_v2", "squeezenet_v1", "swin", "t5_encoder", "vgg", "vit"),
        *("dpn", "focalnet", "hgnet_v2", "levit", "maxvit", "opt", "poolformer", "segformer"),
        *("squeezebert", "swiftformer", "textnet", "xception", "yolov"),
        *("cvt", "deberta", "glpn", "hiera", "nystromformer", "pvt_v2"),
        *("biogpt", "clip_vision_model", "light_inception_v2"),
        *("beit", "nomic_bert", "roformer"),
        "unseen_networks:tcn",
        *("distilbert", "roberta", "albert", "mpnet", "lilt", "luke", "ibert", "openai_gpt", "gpt_bigcode", "imagegpt"),
        *("wide_resnet", "se_resnet", "se_resnext", "senet", "inceptionv", "inceptionresnetv", "polynet", "mgp_str"),
        *(
            "dinov3_convnext",
            "convnextv",
            "donut_swin",
            "swin_v2",
            "efficientnet_v2",
            "light_inception_v1",
            "squeezenet",
        ),
        "pnasnet5large",
    )
)
"""`named_family` of the networks of zoos that features, the model of kernels and calibration were chosen by in 2026. A
family that is collected later is of the test set until its errors were looked at, unless it shares most of its time
with one of these."""


def spent_seeds(folder: Path = RESULTS, script: str = SHOWN_BY, *, before: str | None = None) -> frozenset[int]:
    """Return the test seeds whose errors a benchmark has shown.

    Args:
        folder: of the results.
        before: a commit. Seeds that were shown at this commit only are left out, because nothing can have been changed
            after their errors were seen. A run that continues an interrupted one needs this. Ignored for a commit with
            uncommitted changes.
    """
    rows = stored_tables(script, folder=folder).get(SPENT, [])
    kept = before is not None and not before.endswith("-dirty")
    return frozenset(
        int(seed) for row in rows if not (kept and row["commit"] == before) for seed in row["seeds"].split()
    )


def sets_of(parts: Sequence[Examples], spent: frozenset[int]) -> dict[str, str]:
    """The set of each network, by its name: `DEVELOPMENT`, `CALIBRATION` or `TEST`.

    A network of a zoo is of the development set if it, or one of its family, is among `LOOKED_AT`.

    Args:
        parts: of one processor each.
        spent: test seeds that belong to the development set.
    """
    from op_profiler.prediction.latency.families import families_in, named_family

    families = families_in(parts)
    seen = {family for name, family in families.items() if named_family(name) in LOOKED_AT}
    of_zoos = {name: DEVELOPMENT if family in seen else TEST for name, family in families.items()}
    return {name: set_of_drawn(name, spent) or of_zoo for name, of_zoo in of_zoos.items()}


def set_of_drawn(name: str, spent: frozenset[int]) -> str | None:
    """The set of a drawn network; None for a network of a zoo."""
    seed = seed_of(name)
    if seed is None:
        return None
    return DEVELOPMENT if seed in spent else kind_of_seed(seed)


def spend(processor: str, names: Iterable[str], *, folder: Path = RESULTS) -> None:
    """Record test seeds as spent, before their errors are shown; networks of other sets are ignored.

    A run of a part of the benchmark, whose result is not stored, and a run that is interrupted spend seeds, too.

    Args:
        processor: on which the networks were measured.
        names: of networks, drawn ones and others.
        folder: of results.
    """
    before = spent_seeds(folder)
    seeds = (seed_of(name) for name in names if set_of_drawn(name, before) == TEST)
    spend_seeds(SHOWN_BY, processor, "networks", (seed for seed in seeds if seed is not None), folder=folder)


def spend_seeds(script: str, processor: str, what: str, new: Iterable[int], *, folder: Path = RESULTS) -> None:
    """Record test seeds in the result of a benchmark, before it shows their errors; `what`: ``networks`` or so."""
    seeds = sorted(set(new))
    if not seeds:
        return
    about = measured_on()
    row = {
        "date": about["date"],
        "commit": about["commit"],
        "processor": processor,
        what: len(seeds),
        "seeds": " ".join(map(str, seeds)),
    }
    store_table(script, SPENT, [*stored_tables(script, folder=folder).get(SPENT, []), row], folder=folder)
