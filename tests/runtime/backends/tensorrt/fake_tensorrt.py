"""A stand-in of TensorRT's runtime: an engine computes its ONNX graph in ONNX Runtime, on the addresses it was given.

It is as strict as the documentation: shapes within the profile, every address set and aligned, cache outputs where
their engine wants them, no capture before a first run, no launch of a graph whose context changed. Activations are
scribbled over at every execution.
"""

from __future__ import annotations

import enum
import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime

from .fake_cuda import FakeCuda, Stream

MAGIC = b"a plan of the stand-in\n"


class Severity(enum.IntEnum):
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)


class ILogger:
    def log(self, severity: Severity, text: str) -> None:
        raise NotImplementedError


DataType = enum.Enum("DataType", ["FLOAT", "HALF", "BF16", "INT64"])
DATA_TYPES = {
    "tensor(int64)": DataType.INT64,
    "tensor(float)": DataType.FLOAT,
    "tensor(float16)": DataType.HALF,
}
Strategy = enum.Enum("Strategy", ["STATIC", "ON_PROFILE_CHANGE", "USER_MANAGED"])
Specialization = enum.Enum("Specialization", ["LAZY", "EAGER", "NONE"])


def write_plan(path: Path, **content: Any) -> None:
    """A plan: `graph`, `profiles` with shapes of every input, `aliases`, `activations`, `weights`."""
    text = json.dumps(content).encode()
    path.write_bytes(MAGIC + hashlib.sha256(text).hexdigest().encode() + text)


class FakeTensorRT:
    """The module, of this name and version."""

    ILogger = ILogger
    Logger = SimpleNamespace(**Severity.__members__)
    ExecutionContextAllocationStrategy, DataType = Strategy, DataType

    def __init__(self, cuda: FakeCuda, name: str = "tensorrt", version: str = "11.4.0.1") -> None:
        self.cuda, self.__name__, self.__version__ = cuda, name, version
        self.engines: list[FakeEngine] = []
        if name != "tensorrt_lean":
            self.Refitter, self.OnnxParserRefitter = FakeRefitter, FakeParserRefitter
        if name == "tensorrt_rtx":
            self.DynamicShapesKernelSpecializationStrategy = Specialization

    def Runtime(self, logger: ILogger) -> FakeRuntime:  # noqa: N802 - TensorRT's name
        return FakeRuntime(self, logger)


class FakeRefitter:
    def __init__(self, engine: FakeEngine, logger: ILogger) -> None:
        self.engine, self.filled = engine, False

    def refit_cuda_engine(self) -> bool:
        self.engine.refitted = self.filled
        return self.filled


class FakeParserRefitter:
    def __init__(self, refitter: FakeRefitter, logger: ILogger) -> None:
        self.refitter, self.logger = refitter, logger

    def refit_from_file(self, graph: str) -> bool:
        self.refitter.filled = Path(graph).exists()
        if not self.refitter.filled:
            self.logger.log(Severity.ERROR, "Failed to open the model")
        return self.refitter.filled


class FakeRuntime:
    def __init__(self, module: FakeTensorRT, logger: ILogger) -> None:
        self.module, self.logger = module, logger

    def deserialize_cuda_engine(self, plan: bytes) -> FakeEngine | None:
        head, text = plan[: len(MAGIC) + 64], plan[len(MAGIC) + 64 :]
        if head != MAGIC + hashlib.sha256(text).hexdigest().encode():
            self.logger.log(Severity.ERROR, "Serialization assertion failed: magic tag does not match")
            self.logger.log(Severity.INFO, "no news")
            return None
        return FakeEngine(self.module, json.loads(text))


class FakeEngine:
    def __init__(self, module: FakeTensorRT, plan: dict[str, Any]) -> None:
        self.module, self.plan, self.profiles = module, plan, plan["profiles"]
        module.engines.append(self)
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, 1
        self.session = onnxruntime.InferenceSession(plan["graph"], options, providers=["CPUExecutionProvider"])
        self.inputs = {value.name: value for value in self.session.get_inputs()}
        self.outputs = {value.name: value for value in self.session.get_outputs()}
        self.names = [*self.inputs, *self.outputs]
        self.num_io_tensors = len(self.names)
        self.device_memory_size_v2 = plan.get("activations", 1000)
        self.streamable_weights_size = plan.get("streamable", 0)
        self.weight_streaming_budget_v2 = self.streamable_weights_size
        self.contexts: list[FakeContext] = []
        self.refitted = False
        if "aliases" in plan:  # versions before 10.15 cannot be asked
            self.get_aliased_input_tensor = plan["aliases"].get

    def get_tensor_name(self, index: int) -> str:
        return self.names[index]

    def get_tensor_shape(self, name: str) -> list[int]:
        value = (self.inputs | self.outputs)[name]
        return [-1 if isinstance(dim, str) else dim for dim in value.shape]

    def get_tensor_dtype(self, name: str) -> DataType:
        return DATA_TYPES[(self.inputs | self.outputs)[name].type]

    def create_execution_context(self, strategy: Any) -> FakeContext:
        made = FakeContext(self)
        made.strategy = getattr(strategy, "strategy", strategy)
        made.config = strategy
        self.contexts.append(made)
        return made

    def create_runtime_config(self) -> FakeConfig:
        return FakeConfig()


class FakeConfig:
    def set_execution_context_allocation_strategy(self, strategy: Strategy) -> None:
        self.strategy = strategy

    def create_runtime_cache(self) -> FakeCache:
        return FakeCache()

    def set_runtime_cache(self, cache: FakeCache) -> bool:
        self.cache = cache
        return True


class FakeCache:
    """Holds one line for every shape that ran; a blob that begins with another word is of another machine."""

    WORD = b"kernels:"

    def __init__(self) -> None:
        self.content = b""

    def deserialize(self, blob: bytes) -> bool:
        if not blob.startswith(self.WORD):
            return False
        self.content = blob[len(self.WORD) :]
        return True

    def serialize(self) -> bytes:
        return self.WORD + self.content


class FakeContext:
    def __init__(self, engine: FakeEngine) -> None:
        self.engine, self.cuda = engine, engine.module.cuda
        self.profile, self.shapes, self.addresses = 0, dict[str, tuple[int, ...]](), dict[str, int]()
        self.changes, self.ran_at = 0, -1
        self.work = (0, 0)
        if engine.module.__name__ == "tensorrt_rtx":
            self.is_stream_capturable = lambda stream: engine.plan.get("capturable", True)

    def set_device_memory(self, address: int, size: int) -> None:
        assert address % 256 == 0
        assert size >= self.engine.device_memory_size_v2
        self.work = (address, size)

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        self.profile, self.changes = profile, self.changes + 1
        return profile < len(self.engine.profiles)

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        least, _, most = self.engine.profiles[self.profile][name]
        if len(shape) != len(least) or not all(a <= n <= b for a, n, b in zip(least, shape, most, strict=True)):
            return False
        self.shapes[name], self.changes = shape, self.changes + 1
        return True

    def set_tensor_address(self, name: str, address: int) -> bool:
        assert address % 256 == 0, f"{name} is not aligned"
        self.addresses[name], self.changes = address, self.changes + 1
        return name in self.engine.names

    def execute_async_v3(self, handle: int) -> bool:
        stream: Stream = self.cuda.streams[handle]
        assert set(self.addresses) == set(self.engine.names)
        assert set(self.shapes) == set(self.engine.inputs)
        assert self.strategy is Strategy.USER_MANAGED
        for name, origin in self.engine.plan.get("must_alias", {}).items():
            assert (self.addresses[name] == self.addresses[origin]) is self.engine.plan["in_place"], name
        capturing = stream.capture is not None
        if capturing and (self.ran_at != self.changes or self.engine.plan.get("no_capture")):
            return False
        self.ran_at = self.changes
        shapes, addresses, changes = dict(self.shapes), dict(self.addresses), self.changes

        def work() -> None:
            assert not capturing or self.changes == changes, "a graph is launched whose context has changed"
            self.compute(shapes, addresses)

        stream.add(work)
        return True

    def compute(self, shapes: dict[str, tuple[int, ...]], addresses: dict[str, int]) -> None:
        """Run the graph in place; symbolic dimensions of the outputs are those of the inputs."""
        self.cuda.fill(*(self.work[0], 0x7F, self.work[1]))
        if isinstance(self.config, FakeConfig):
            self.config.cache.content = self.config.cache.content or str(shapes).encode()
        extents: dict[str, int] = {}
        binding = self.engine.session.io_binding()
        for name, value in self.engine.inputs.items():
            extents |= {dim: n for dim, n in zip(value.shape, shapes[name], strict=True) if isinstance(dim, str)}
            self.bind(binding.bind_input, value, shapes[name], addresses[name])
        for name, value in self.engine.outputs.items():
            shape = tuple(extents[dim] if isinstance(dim, str) else dim for dim in value.shape)
            self.bind(binding.bind_output, value, shape, addresses[name])
        self.engine.session.run_with_iobinding(binding)

    def bind(self, to: Any, value: Any, shape: tuple[int, ...], address: int) -> None:
        dtype = np.dtype(DTYPES[value.type])
        self.cuda.check(address, int(np.prod(shape)) * dtype.itemsize)
        to(value.name, "cpu", 0, dtype.type, shape, address)


DTYPES = {"tensor(int64)": np.int64, "tensor(float)": np.float32, "tensor(float16)": np.float16}
