"""`PredictRequest`: the options of ``op-profiler predict``, checked without heavy imports."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Annotated, Any, Literal, get_args

from op_profiler.building.request import BuildRequest, CheckOutputsOption, check_rule, one_of
from op_profiler.compilers import COMPILERS, DEFAULT_COMPILER
from op_profiler.compilers.compiler import use_compiler
from op_profiler.errors import UsageError
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.measurement import Precision
from op_profiler.option_values import parse_counts
from op_profiler.options import DEVICE, MODEL, Option
from op_profiler.prediction.latency import PREDICTORS
from op_profiler.targets.target import kind_of

_PREDICTOR = "Predictor"
_COMPILER_OF_STEPS, _SOURCE_OF_STEPS = "relax", "transformers"
_LENGTHS = 4
"""Lengths of the past at which steps of a decoder are predicted."""

Kernels = Literal["tvm", "vendor"]
PredictedSchedules = Literal["none", "rule"]


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
            "Expected data type of the inputs, such as float32. The command fails if the model has another type.",
            MODEL,
            flags=("--input_dtype", "--input-dtype"),
        ),
    ] = ""
    target: Annotated[
        str | None, Option("Target to lower the model for. Default: that of the predictor's device.", DEVICE)
    ] = None
    compiler: Annotated[
        str,
        Option(
            "Compiler that generates the kernels: {compilers}. Default: relay, or relax with --prefill.",
            MODEL,
            parse=lambda _, name: name,
        ),
    ] = DEFAULT_COMPILER
    prefill: Annotated[
        int | None,
        Option(
            "Tokens of the prompt of a language model: predicts the seconds to the first token. Uses --compiler relax, "
            "and needs a decoder of transformers (llama, mistral, qwen2) or a folder with a config.json.",
            MODEL,
            least=1,
        ),
    ] = None
    decode: Annotated[
        int | None,
        Option(
            "Tokens to generate after the prompt of --prefill, one at a time: also predicts the tokens per second.",
            MODEL,
            least=1,
        ),
    ] = None
    schedules: Annotated[
        PredictedSchedules,
        Option(
            "Schedules of the kernels. none: the compiler's own. rule: those of op-profiler collect --schedules rule.",
            MODEL,
        ),
    ] = "none"
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
            "Device to predict for: the start of its key, or a part of its name or target. Several devices, separated "
            "by commas, have one column each; 'list' prints the devices. Default: this machine if it was calibrated; "
            "otherwise its processor, if the package includes data of it; otherwise the included processor with the "
            "most similar name. Default with --db: the only device of the dataset, or this machine if there are "
            "several.",
            DEVICE,
        ),
    ] = None
    db: Annotated[
        str | None,
        Option(
            "Dataset to fit the predictor to. Default: this machine's calibration, or the data included with the "
            "package.",
            _PREDICTOR,
        ),
    ] = None
    include_noisy: Annotated[
        bool, Option("Also fit to times of --db that were disturbed (background load, unsteady rounds).", _PREDICTOR)
    ] = False
    predictor: Annotated[str, Option("Predictor: {predictors}, or a file written by --save.", _PREDICTOR)] = "default"
    kernels: Annotated[
        Kernels,
        Option(
            "tvm: kernels that TVM compiles. vendor: kernels of NVIDIA's libraries on the --device (a100, h100, h200, "
            "l4, v100), from times that others published; no GPU is needed.",
            _PREDICTOR,
        ),
    ] = "tvm"

    @classmethod
    def of_options(
        cls,
        *,
        compiler: str | None = None,
        prefill: int | None = None,
        **fields: Any,
    ) -> PredictRequest:
        """Return a request; with ``--prefill``, the compiler defaults to relax and the model source to transformers."""
        made = cls(compiler=compiler or DEFAULT_COMPILER, prefill=prefill, **fields)
        if prefill is None:
            return made
        compiler = compiler or _COMPILER_OF_STEPS
        source = _SOURCE_OF_STEPS if made.model.source == ModelRequest.source else made.model.source
        return dataclasses.replace(made, compiler=compiler, model=dataclasses.replace(made.model, source=source))

    def of_step(self, tokens: int, past: int) -> PredictRequest:
        """Return the request for a decoder step that processes `tokens` tokens; `past` tokens are in its cache."""
        return dataclasses.replace(self, model=dataclasses.replace(self.model, sequence_length=tokens, past=past))

    @property
    def pasts(self) -> tuple[int, ...]:
        """Number of earlier tokens of each step that is predicted for ``--decode``; the other steps are interpolated.

        The numbers form a geometric sequence, because the time is linear in the past as long as keys and values fit
        into one level of the caches, and the sizes of these levels differ by factors. The first and the last step are
        included, so that nothing is extrapolated.
        """
        if self.prefill is None or self.decode is None:
            return ()
        longer = (self.prefill + self.decode - 1) / self.prefill
        return tuple(sorted({round(self.prefill * longer ** (at / (_LENGTHS - 1))) for at in range(_LENGTHS)}))

    def build(self, target: str, threads: int) -> BuildRequest:
        """Return the build of the model for a target and a thread count, which is 0 on a GPU."""
        return BuildRequest(
            model=self.model,
            target=target,
            compiler=self.compiler,
            precision=self.precision,
            schedules=self.schedules,
            threads=(threads,),
            check_outputs=self.check_outputs,
        )

    def collect_command(self, db: str) -> str:
        """Return the command that measures the steps of ``--prefill`` and ``--decode`` into a dataset."""
        threads = ",".join(map(str, self.threads or (1,)))
        steps = f"--prefill {self.prefill}"
        if self.pasts:
            steps += f" --decode 1 --past {','.join(map(str, self.pasts))}"
        if self.model.batch_size != ModelRequest.batch_size:
            steps += f" --batchsize {self.model.batch_size}"
        name = shlex.quote(self.model.name)
        return f"op-profiler collect {name} --compiler {self.compiler} {steps} --threads {threads} --db {db}"

    def check(self) -> None:
        """Check the options and the model, and select the compiler for this process.

        Raises:
            OpProfilerError: an option is out of range, or there is no such model.
        """
        self.check_options()
        model = self.model if self.prefill is None else self.of_step(self.prefill, 0).model
        COMPILERS.get(self.compiler).check_importer(model.importer)
        FRONTENDS.get(model.source).check(model)

    def check_options(self) -> None:
        """Check the options without the model, and select the compiler for this process.

        Raises:
            OpProfilerError: an option is out of range.
        """
        from op_profiler.prediction.latency.open_predictor import check_choice

        if self.db is not None and self.predictor not in PREDICTORS:
            check_choice(self.predictor)
            raise UsageError(f"{self.predictor} is a fitted predictor and is not fitted to --db; leave out --db")
        if self.include_noisy and self.db is None:
            raise UsageError("--include-noisy is for the times of a dataset; add it with --db")
        if self.kernels == "vendor":
            given = {
                "--target": self.target,
                "--db": self.db,
                "--threads": self.threads,
                "--schedules": self.schedules != "none",
                "--prefill": self.prefill,
                "--predictor": None if self.predictor == "default" else self.predictor,
                "--compiler": None if self.compiler == DEFAULT_COMPILER else self.compiler,
            }
            refused = [flag for flag, value in given.items() if value]
            if refused:
                raise UsageError(f"--kernels vendor uses its own predictor; leave out {', '.join(refused)}")
        if self.prefill is None and self.decode is not None:
            raise UsageError("--decode generates tokens after a prompt; give the tokens of the prompt with --prefill")
        if self.prefill is not None and self.model.sequence_length is not None:
            raise UsageError("--prefill is the number of tokens of the prompt; leave out --sequence-length")
        one_of("value of --schedules", self.schedules, get_args(PredictedSchedules))
        check_rule(self.schedules, self.compiler, kind_of(self.target or "llvm"))
        if self.prefill is not None:
            COMPILERS.get(self.compiler).require("load_step", "--prefill")
        use_compiler(self.compiler)
