"""Selection of the predictor for a request, and lowering of the network of the request."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from functools import partial

from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.compilers.imported_model import Agreement
from op_profiler.errors import DatasetError, UsageError
from op_profiler.prediction.latency import PREDICTORS, checks, open_predictor, predictor_files
from op_profiler.prediction.latency.calibration import calibrated, device_sentence, is_of_other_device, of_this_machine
from op_profiler.prediction.latency.checks import Check
from op_profiler.prediction.latency.lowered_models import Lower, lowered_model
from op_profiler.prediction.latency.network import Network, NetworkPrediction, predict_network
from op_profiler.prediction.latency.operator_predictor import OperatorPredictor
from op_profiler.prediction.latency.request import PredictRequest
from op_profiler.prediction.latency.vendor import VendorPredictor, open_vendor
from op_profiler.targets.target import kind_of

Note = Callable[[str], None]
CALIBRATION = "a calibration"


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The predictor that was selected for a request.

    Attributes:
        request: the request.
        predictor: the selected predictor.
        device: device that the predictor was opened for: that of the request, or one with included data for its target;
            None if the predictor was opened without a device.
        wanted: dataset, device or predictor that the user named; `CALIBRATION` if this machine's calibration was
            selected; None if included data was selected.
        target: target that models are lowered for.
        threads: requested thread counts; 0 on a GPU.
    """

    request: PredictRequest
    predictor: OperatorPredictor | VendorPredictor
    device: str | None
    wanted: str | None
    target: str
    threads: tuple[int, ...]

    @property
    def of_tvm(self) -> OperatorPredictor:
        """The predictor of TVM's kernels; only for requests without ``--kernels vendor``."""
        assert isinstance(self.predictor, OperatorPredictor), "of vendors' kernels"
        return self.predictor

    @property
    def origin(self) -> str:
        """A sentence about the device whose measurements the predictor was fitted to."""
        if self.request.kernels == "vendor":
            name = self.predictor.device.processor
            return f"times of kernels of NVIDIA's libraries on {name}, from times that others published; NOT of TVM's"
        return device_sentence(self.predictor.device, self.wanted, self.request.target)

    @property
    def is_of_other_device(self) -> bool:
        """Whether the predicted times are those of another device than the user wants; see `device_sentence`."""
        return is_of_other_device(self.predictor.device, self.wanted, self.request.target)

    @functools.cached_property
    def version(self) -> str:
        """Digest (16 hex digits) of everything that determines the predictions."""
        return predictor_files.digest(self.of_tvm)

    @property
    def for_this_machine(self) -> bool:
        """Whether the predictions are for this machine's processor, so that measurements on it can check them."""
        device, kind = self.predictor.device, kind_of(self.predictor.device.target)
        here = self.wanted in (None, CALIBRATION) or of_this_machine(device)
        return here and kind.on_host and self.request.target in (None, kind.name)

    @functools.cached_property
    def _checks(self) -> list[Check]:
        """Checks that were made on this machine; empty if the predictions are not for it."""
        if not self.for_this_machine or not checks.tally_file().exists():
            return []
        return checks.stored(kind_of(self.predictor.device.target).machine_identity())

    def widening(self, threads: int) -> float:
        """Return the factor by which checks on this machine widen the half-widths of intervals; 1 without checks."""
        return checks.widening(self._checks, self.version, threads) if self._checks else 1.0

    def predict(self, network: Network, threads: int) -> NetworkPrediction:
        """Predict a network, with intervals widened according to the checks on this machine."""
        return predict_network(self.predictor, network, threads=threads, widening=self.widening(threads))


def choose(request: PredictRequest, note: Note) -> Chosen:
    """Select the predictor for a request.

    Args:
        request: a request after its `check`.
        note: called with a text before each step that takes long.

    Raises:
        OpProfilerError: there is no such predictor, or it has no times for the target or a thread count.
    """
    if request.kernels == "vendor":
        return Chosen(request, open_vendor(request.device), None, request.device, "llvm", (0,))
    target, device, threads = request.target, request.device, request.threads or (1,)
    on_gpu = target is not None and kind_of(target).on_gpu
    named = request.db or device or (None if request.predictor in PREDICTORS else request.predictor)
    opened = partial(open_predictor.open_predictor, on_gpu=on_gpu, noisy=request.include_noisy)
    found = None
    if named is None and request.predictor == "default" and request.compiler == DEFAULT_COMPILER:
        found = calibrated(opened, target, note)
    wanted = named or (None if found is None else CALIBRATION)
    if wanted is None:
        device = open_predictor.device_for(target)
    try:
        found = found or opened(request.predictor, db=request.db, device=device, compiler=request.compiler, note=note)
    except DatasetError as error:
        if request.prefill is None or wanted is not None:
            raise
        command = request.collect_command("steps.db")
        raise DatasetError(
            f"the included data has no measurements of --compiler {request.compiler}. Measure these steps with: "
            f"{command}; then add --db steps.db"
        ) from error
    built_for, of_gpu = target or found.device.target, kind_of(found.device.target).on_gpu
    if kind_of(built_for).on_gpu != of_gpu:
        raise UsageError(
            f"--target {target} does not fit the times of {found.device.processor} ({found.device.target}); leave "
            "it out, or name a device that fits with --device"
        )
    if of_gpu:
        if request.threads:
            raise UsageError("--threads has no meaning for kernels of a GPU, which bring their own; leave it out")
        threads = tuple(found.thread_counts)  # 0: GPU kernels define their own blocks and threads
        if target == kind_of(found.device.target).name:
            built_for = found.device.target  # this machine needs no GPU
    found.check_threads(threads)
    return Chosen(request, found, device, wanted, built_for, threads)


def network_of(
    chosen: Chosen, request: PredictRequest, note: Note, lower: Lower | None = None
) -> tuple[Network, Agreement]:
    """Return the operators of a request's model as the predictor needs them, and the agreement of the model's outputs
    with those of its own framework.

    Args:
        lower: as in `lowered_model`.

    Raises:
        OpProfilerError: the model cannot be read or lowered, or its inputs have another type.
    """
    build = request.build(chosen.target, 0 if kind_of(chosen.target).on_gpu else 1)
    build.check(dry_run=True, lowers=False)
    model = lowered_model(build, note, lower)
    if request.input_dtype and any(found != request.input_dtype for found in model.input_dtypes.values()):
        takes = ", ".join(f"{name}: {found}" for name, found in model.input_dtypes.items())
        raise UsageError(f"--input_dtype {request.input_dtype}: {build.model.name} takes {takes}")
    network = model.network().with_loops(chosen.predictor, chosen.threads, target=chosen.target, note=note)
    return network, model.agreement


def of_each_regressor(chosen: Chosen, network: Network, note: Note) -> dict[str, NetworkPrediction]:
    """Return the predictions of a network by all methods that use only regressions, by the name of the method."""
    request, found = chosen.request, {}
    for choice, method in PREDICTORS.available():
        if method.only_regresses:
            regressor = open_predictor.open_predictor(
                choice,
                db=request.db,
                device=chosen.device,
                compiler=request.compiler,
                noisy=request.include_noisy,
                note=note,
            )
            # A regression-only method looks up no times, so all operators need their loops.
            described = network.with_loops(regressor, chosen.threads[:1], target=chosen.target, note=note)
            found[choice] = predict_network(regressor, described, threads=chosen.threads[0])
    return found
