"""What do the loops of the operators that ship do? Writes `results/operator_loops.npz`, which predictors read.

    python benchmarks/shipped_loops.py          (some minutes; goes on where it was interrupted)

Goal: every operator that ships has its loops told, but for one in a hundred.
"""

from __future__ import annotations

from common import ROOT, provenance, store


def main() -> None:
    import numpy as np

    from op_profiler.files import whole_file
    from op_profiler.predict.latency.examples import load_examples
    from op_profiler.predict.latency.loops import loops_of, write_loops
    from op_profiler.shipped import shipped_operators

    print(provenance())
    examples = load_examples(file=shipped_operators())
    (device,) = examples.devices
    shipped = ROOT / "results" / "operator_loops.npz"
    shipped.unlink(missing_ok=True)  # else its own rows would be read back, and none would be asked for
    loops = loops_of(examples.operators, device.target, print)
    with whole_file(shipped) as path:
        write_loops(path, examples.operators, loops, device.target)
    told = int(np.isfinite(loops).all(axis=1).sum())
    record = {"target": device.target, "operators": len(loops), "told": told, "columns": loops.shape[1]}
    store(__file__, f"loops of {told} of {len(loops)} operators", {"loops": [record]}, whole=True)


if __name__ == "__main__":
    main()
