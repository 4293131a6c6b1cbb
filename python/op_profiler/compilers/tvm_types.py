"""Protocols of the TVM objects that this package uses, because TVM has no type hints.

Values that one part of the package passes to another have one of these types. Compilers also distinguish nodes of
programs by `isinstance`; what they read from these nodes is as untyped as TVM itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np


class Named(Protocol):
    """An object with a name: a ``tvm.ir.Op``, the kind of a target, information on a pass."""

    @property
    def name(self) -> str:
        """Name, such as ``nn.conv2d`` for an op, ``llvm`` for the kind of a target."""


class Target(Protocol):
    """A ``tvm.target.Target``: what code is compiled for. Inside a ``with`` block, it is TVM's current target."""

    @property
    def kind(self) -> Named:
        """Its ``name`` is the code generator, such as ``llvm`` or ``cuda``."""

    @property
    def keys(self) -> Sequence[str]:
        """Families of the target, such as ``cpu`` or ``arm_cpu``."""

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Options by name, such as ``mcpu``."""

    def export(self) -> Mapping[str, Any]:
        """Return all fields from which the target can be created again."""

    def __enter__(self) -> Target: ...

    def __exit__(self, *failure: object) -> None: ...


class Node(Protocol):
    """A node of a program in Relay or Relax: a ``RelayExpr``, which is the base of both."""

    @property
    def checked_type(self) -> Any:
        """Type after type inference: of a tensor, or of a tuple."""

    @property
    def handle(self) -> Any:
        """A ctypes pointer to the node: the same pointer whenever TVM returns this node."""

    def same_as(self, other: object) -> bool:
        """Return whether `other` is the same object in TVM, not merely an equal node."""


class Variable(Node, Protocol):
    """A ``tvm.relay.Var``."""

    @property
    def name_hint(self) -> str:
        """Name that the importer gave; several variables may have one name."""


class Call(Node, Protocol):
    """A call of an op or of a function."""

    @property
    def op(self) -> Any:
        """A ``tvm.ir.Op``, a function, or a variable that stands for a function."""

    @property
    def args(self) -> Sequence[Any]:
        """Expressions of the operands, in order."""

    @property
    def attrs(self) -> Any:
        """An object with a field for each attribute of the op."""

    @property
    def type_args(self) -> Any:
        """Type arguments that inference filled in: for a call of an op, the types of `args`."""

    @property
    def span(self) -> Any:
        """Position in the user's model; None if the importer did not store one."""


class Function(Node, Protocol):
    """A ``tvm.relay.Function``, a ``tvm.relax.Function``."""

    @property
    def params(self) -> Sequence[Any]:
        """Variables of the parameters, in order."""

    @property
    def body(self) -> Any:
        """Expression of the result."""

    @property
    def ret_type(self) -> Any:
        """Declared type of the result; None if the function declares no type."""

    @property
    def attrs(self) -> Any:
        """Attributes by name; None if there are none."""


class IRModule(Protocol):
    """A ``tvm.IRModule``: a program."""

    @property
    def functions(self) -> Mapping[Any, Any]:
        """Functions by the ``tvm.ir.GlobalVar`` that calls refer to."""

    @property
    def type_definitions(self) -> Mapping[Any, Any]:
        """Algebraic data types by their ``tvm.ir.GlobalTypeVar``; only modules of Relay have them."""

    @property
    def attrs(self) -> Any:
        """Attributes by name; None if there are none."""

    def __getitem__(self, name: Any) -> Any:
        """Return a function, by its name or by its ``tvm.ir.GlobalVar``."""

    def get_global_var(self, name: str) -> Any:
        """Return the ``tvm.ir.GlobalVar`` of a function. TVM raises an error if the module has no such function."""

    def functions_items(self) -> Sequence[tuple[Any, Any]]:
        """Return the items of `functions`, ordered by the names of the functions."""

    def update_func(self, variable: Any, function: Any) -> None:
        """Give a function another definition, in place."""


class RuntimeDevice(Protocol):
    """A ``tvm.runtime.Device``; the attributes about hardware are those of a GPU."""

    @property
    def device_type(self) -> int:
        """DLPack's code of the kind of device, plus a multiple of 128 for a device behind RPC."""

    @property
    def device_id(self) -> int:
        """Index among the devices of this kind, from 0."""

    @property
    def device_name(self) -> str:
        """Product name, as the driver reports it."""

    @property
    def compute_version(self) -> str:
        """CUDA's compute capability, such as ``9.0``."""

    @property
    def multi_processor_count(self) -> int:
        """Number of streaming multiprocessors."""

    @property
    def max_clock_rate(self) -> int:
        """Maximum clock in kilohertz."""

    @property
    def warp_size(self) -> int:
        """Threads per warp."""

    @property
    def max_threads_per_block(self) -> int:
        """Largest number of threads that a block can be launched with."""

    @property
    def max_shared_memory_per_block(self) -> int:
        """Shared memory of a block, bytes."""

    def sync(self, stream: int | None = None) -> None:
        """Wait for everything launched on a stream; None is the default stream."""

    def create_raw_stream(self) -> int:
        """Create a stream and return its handle, which `free_raw_stream` releases."""

    def free_raw_stream(self, stream: int) -> None:
        """Destroy a stream of `create_raw_stream`."""

    def set_raw_stream(self, stream: int | None) -> None:
        """Make this thread launch on a stream from now on; None is the default stream."""


class DeviceArray(Protocol):
    """A ``tvm.nd.NDArray``: a tensor in the memory of a device."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis; empty for a scalar."""

    @property
    def dtype(self) -> str:
        """Data type, such as ``float32``."""

    @property
    def handle(self) -> Any:
        """A ctypes pointer to its DLTensor."""

    def numpy(self) -> np.ndarray:
        """Return a copy of its values."""

    def copyto(self, target: RuntimeDevice | DeviceArray) -> DeviceArray:
        """Copy the array to a device, or into an array of the same shape; return the copy."""

    def copyfrom(self, source: np.ndarray | DeviceArray) -> DeviceArray:
        """Copy the values of another array of the same shape into this one; return this array."""


class PackedFunction(Protocol):
    """A ``tvm.runtime.PackedFunc``."""

    @property
    def handle(self) -> Any:
        """The ctypes pointer that ``TVMFuncCall`` takes."""

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""


class RuntimeModule(Protocol):
    """A ``tvm.runtime.Module``: compiled functions."""

    @property
    def entry_func(self) -> PackedFunction:
        """The only function of a module that was built from a single function."""

    @property
    def entry_name(self) -> str:
        """Name of the function `entry_func` in this module, for `get_function`."""

    @property
    def type_key(self) -> str:
        """Kind of the module, such as ``llvm``."""

    @property
    def imported_modules(self) -> Sequence[RuntimeModule]:
        """Modules that this module imports, such as the GPU code that its functions launch."""

    def import_module(self, module: RuntimeModule) -> None:
        """Make the functions of another module available to this one."""

    def save(self, path: str, form: str) -> None:
        """Write the module to a file, without linking."""

    def get_source(self, form: str) -> str:
        """Return its code: ``ll`` or ``asm`` of a processor's module, or the source code of a GPU's."""

    def __call__(self, *arguments: Any) -> Any:
        """Call `entry_func`."""

    def __getitem__(self, name: str) -> PackedFunction: ...

    def get_function(self, name: str) -> PackedFunction:
        """Return a compiled function. Raise AttributeError if the module has no function of this name."""

    def time_evaluator(self, name: str, device: RuntimeDevice, **options: Any) -> Callable[..., Any]:
        """Return a function that times the function `name` by the device's clock. The object that it returns has the
        times, in seconds, in the attribute ``results``."""

    def export_library(self, path: str, **options: Any) -> None:
        """Link the module into a file."""


class RemoteSession(Protocol):
    """A ``tvm.rpc.RPCSession``."""

    def device(self, name: str, number: int) -> RuntimeDevice:
        """Return a device of the remote machine, such as ``cpu`` 0."""

    def get_function(self, name: str) -> PackedFunction:
        """Return a function of the remote runtime."""

    def upload(self, path: str) -> object:
        """Send a file; its name on the remote machine is the same."""

    def load_module(self, name: str) -> RuntimeModule:
        """Load a file that was sent before."""


class GraphExecutor(Protocol):
    """The part of a ``tvm.contrib.graph_executor.GraphModule`` that sets inputs."""

    def set_input(self, key: str, value: np.ndarray | DeviceArray) -> None:
        """Copy a value into the model's input of this name."""
