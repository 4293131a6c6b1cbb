"""`PredictRequest`: the options of ``op-profiler predict``, checked without heavy imports."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from op_profiler.building.request import CheckOutputsOption, CompilerOption
from op_profiler.compilers import COMPILERS, DEFAULT_COMPILER
from op_profiler.compilers.compiler import use_compiler
from op_profiler.errors import UsageError
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.measurement import Precision
from op_profiler.option_values import parse_counts
from op_profiler.options import DEVICE, MODEL, Option
from op_profiler.prediction.latency import PREDICTORS

_PREDICTOR = "Predictor"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictRequest:
    """Options of a prediction: a model and a predictor.

    Attributes:
        threads: thread counts; empty for 1, or for a GPU.
    """

    model: ModelRequest = ModelRequest()
    input_dtype: Annotated[
        str,
        Option(
            "Expected data type of the inputs, such as float32. It is an error if the model has another type.",
            MODEL,
            flags=("--input_dtype", "--input-dtype"),
        ),
    ] = ""
    target: Annotated[
        str | None, Option("Target to lower the model for. Default: that of the predictor's device.", DEVICE)
    ] = None
    compiler: CompilerOption = DEFAULT_COMPILER
    check_outputs: CheckOutputsOption = "once"
    precision: Annotated[Precision, Option("Precision: float32, float16 or int8.", DEVICE)] = "float32"
    threads: Annotated[
        tuple[int, ...],
        Option(
            "Thread counts to predict for, among those measured on the device. Default: 1.", DEVICE, parse=parse_counts
        ),
    ] = ()
    device: Annotated[
        str | None,
        Option(
            "Device to predict for: the start of its key, or a part of its name or target. Several, separated by "
            "commas, give a column each; 'list' prints the devices. Default: this machine if it was calibrated, "
            "otherwise the processor with included data whose name is most similar. Default with --db: the "
            "only device of the dataset, or this machine if there are several.",
            DEVICE,
        ),
    ] = None
    db: Annotated[
        str | None,
        Option(
            "Dataset to fit to. Default: this machine's calibration, or the data included with the package.", _PREDICTOR
        ),
    ] = None
    predictor: Annotated[str, Option("Predictor: {predictors}, or a file written by --save.", _PREDICTOR)] = "default"

    def check(self) -> None:
        """Check the options, and select the compiler for this process.

        Raises:
            OpProfilerError: an option is out of range, or there is no such model.
        """
        from op_profiler.prediction.latency.open_predictor import check_choice

        if self.db is not None and self.predictor not in PREDICTORS:
            check_choice(self.predictor)
            raise UsageError(f"{self.predictor} was fitted before, and learns nothing from a dataset; leave out --db")
        COMPILERS.get(self.compiler).check_importer(self.model.importer)
        use_compiler(self.compiler)
        FRONTENDS.get(self.model.source).check(self.model)
