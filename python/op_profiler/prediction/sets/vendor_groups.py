"""Groups of kernels of vendors' libraries, from the sets NeuSight and aiconfigurator.

The predictor of `predict --kernels vendor` is fitted to these groups.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from op_profiler.prediction.sets import aiconfigurator, neusight
from op_profiler.prediction.sets.kernel_problem import KernelPredictor
from op_profiler.prediction.sets.kernels import Kernels, Processor
from op_profiler.prediction.sets.public_set import Reading

GPUS = {
    "a100": "NVIDIA A100 80GB PCIe",
    "h100": "NVIDIA H100 80GB HBM3",
    "l4": "NVIDIA L4",
    "v100": "Tesla V100-PCIE-32GB",
}
"""NeuSight's names of the GPUs of the float32 groups. P4, P100 and T4 are not used: calibration leaves out each GPU in
turn, which would take long, and the training and test rows of the P4 were measured in different states.
"""
_OPERATORS = {
    "float32 product": ("linear", "batched product"),
    "float32 softmax": ("softmax",),
    "float32 element-wise": ("element-wise",),
    "float32 norm": ("layer norm",),
}
_SCALED = 3  # bytes that the kernel moves per element: bfloat16 in, fp8 out
_MOST_ROWS, _MOST_PRODUCTS = 10_000, 4_000
_FEW_SITES, _SHARE = 20, 0.1


@dataclasses.dataclass(frozen=True)
class VendorGroup:
    """Kernels of one kind on several GPUs.

    Attributes:
        table: all rows.
        site: number of each row's site; -1: the row belongs to no site and is never held out. The rows of a site have
            some sizes in common, such as those of the weights.
        site_name: description of what the rows of a site have in common.
        by_site: whether intervals are calibrated on sites that are left out, not on random rows.
    """

    table: Kernels
    site: np.ndarray
    site_name: str
    by_site: bool = False

    @classmethod
    def of(cls, table: Kernels, site: np.ndarray, site_name: str, *, by_site: bool = False) -> VendorGroup:
        """Return a group in which rows with equal values of `site` belong to the same site.

        Args:
            site: shape (rows,) or (rows, values); a row with a negative value belongs to no site and is never held out.
        """
        _, number = np.unique(site, axis=0, return_inverse=True)
        outside = (site.reshape(len(table), -1) < 0).any(axis=1)
        return cls(table, np.where(outside, -1, number.ravel()), site_name, by_site)

    def parts(self, seed: int) -> list[np.ndarray]:
        """Return masks of rows to hold out: a mask for each site if there are few sites, otherwise one mask of a random
        tenth of the sites."""
        sites = np.unique(self.site[self.site >= 0])
        if len(sites) < _FEW_SITES:
            return [self.site == one for one in sites]
        drawn = np.random.default_rng(seed).random(len(sites)) < _SHARE
        return [np.isin(self.site, sites[drawn])]

    def fit(self, seed: int, without: np.ndarray | None = None) -> KernelPredictor:
        """Return a predictor that is fitted to all rows, or to the rows outside of the mask `without`."""
        kept = (
            self
            if without is None
            else dataclasses.replace(self, table=self.table.where(~without), site=self.site[~without])
        )
        parts = kept.parts(seed) if kept.by_site else None
        return KernelPredictor.fit(kept.table, seed, own=False, parts=parts)


def copies(moved: np.ndarray, processors: list[Processor], processor: np.ndarray, time_us: np.ndarray) -> Kernels:
    """Return kernels that are described only by the bytes that they move."""
    one = np.ones(len(moved))
    return Kernels(
        sizes=np.stack([one, moved, one, one], axis=1),
        flops=moved,
        moved=moved,
        kind=np.zeros(len(moved), dtype=np.int64),
        processor=processor,
        processors=processors,
        time_us=time_us,
        more=np.zeros((len(moved), 0)),
    )


def half_products(folder: Path) -> VendorGroup:
    """Return the matrix products in bfloat16 of all systems of aiconfigurator."""
    table = _joined([_products(folder, system) for system in aiconfigurator.TABLES])
    return VendorGroup.of(table, table.sizes[:, 2:], "weights of one size")


def half_batched_products(folder: Path) -> VendorGroup:
    """Return batched products of latent attention in bfloat16, and random products that are not batched, at most
    `_MOST_PRODUCTS` per system."""
    tables, sites = [], []
    for system in aiconfigurator.TABLES:
        product = _products(folder, system)
        drawn = np.random.default_rng(0).permutation(len(product))[:_MOST_PRODUCTS]
        batched = aiconfigurator.read_batched_products(folder, system)
        tables += [batched, product.where(drawn)]
        sites += [batched.sizes[:, 2], -np.ones(len(drawn))]
    return VendorGroup.of(_joined(tables), np.concatenate(sites), "one of the two sizes of the weights", by_site=True)


def half_copies(folder: Path) -> VendorGroup:
    """Return kernels that scale a matrix and convert it to fp8, measured on H100 and H200 but not on A100."""
    tables, widths = [], []
    for system in ("h100_sxm", "h200_sxm"):
        columns = aiconfigurator.read_columns(folder, system, "quantize/scale_matrix", ("m", "k", "latency"))
        moved = _SCALED * columns["m"].astype(np.float64) * columns["k"]
        processor = aiconfigurator.read_processors(folder, system)[:1]
        tables.append(copies(moved, processor, np.zeros(len(moved), dtype=np.int64), columns["latency"] * 1e3))
        widths.append(columns["k"])
    return VendorGroup.of(_joined(tables), np.concatenate(widths), "one length of rows")


def single_operators(folder: Path, group: str) -> VendorGroup:
    """Return at most `_MOST_ROWS` random rows of a group of `_OPERATORS`, from NeuSight's training and test rows."""
    processors = single_processors(folder)
    used, rows = {one.name for one in processors}, []
    for operator in _OPERATORS[group]:
        names, file, _ = neusight.OPERATORS[operator]
        for part in neusight.rows_of(folder, names, file):
            rows += Reading().timed(part, "Latency")
    rows = [
        row if "M" in row else {name: row[name] for name in ("OPName", "Device", "Latency", "B", "H")} for row in rows
    ]
    table = neusight.kernels([row for row in rows if row["Device"] in used], processors)
    drawn = np.random.default_rng(0).permutation(len(table))[:_MOST_ROWS]
    table = table.where(np.sort(drawn))
    return VendorGroup.of(
        table, table.sizes[:, 2:], "weights of one size" if "product" in group else "one length of rows"
    )


def single_processors(folder: Path) -> list[Processor]:
    """Return NeuSight's data sheets of the GPUs of `GPUS` and of the A100 with 40 GB."""
    used = {*GPUS.values(), "NVIDIA A100-PCIE-40GB"}
    return [one for one in neusight.processors_of(folder) if one.name in used]


def readers(sets: Path) -> dict[str, Callable[[], VendorGroup]]:
    """Return, by the name of each group, a function that reads the group.

    Args:
        sets: folder that contains a folder for each set.
    """
    half, single = sets / "aiconfigurator", sets / "neusight"
    return {
        "float16 product": partial(half_products, half),
        "float16 batched product": partial(half_batched_products, half),
        "float16 copy": partial(half_copies, half),
        **{name: partial(single_operators, single, name) for name in _OPERATORS},
    }


def _products(folder: Path, system: str) -> Kernels:
    table = aiconfigurator.read_table(folder, system, Reading())
    table = table.where(table.kind == 0)
    return dataclasses.replace(table, processors=table.processors[:1])


def _joined(tables: list[Kernels]) -> Kernels:
    """Concatenate tables, each of which has only one processor."""
    sheets = list(dict.fromkeys(table.processors[0] for table in tables))
    number = [np.full(len(table), sheets.index(table.processors[0])) for table in tables]
    names = ("sizes", "flops", "moved", "kind", "time_us", "more")
    arrays = {name: np.concatenate([getattr(table, name) for table in tables]) for name in names}
    return Kernels(**arrays, processor=np.concatenate(number), processors=sheets)
