"""Plans become engines: read, checked against the contract, and given their execution contexts."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeformer.runtime import names
from edgeformer.runtime.bundle import Artifact, Bundle, Engine, Manifest
from edgeformer.runtime.errors import BackendUnavailableError, BundleError, DeviceError

if TYPE_CHECKING:
    import tensorrt as trt

PREFILL, DECODE = 0, 1  # profiles of the step graph
DATA_TYPES = {"float16": "HALF", "bfloat16": "BF16", "float32": "FLOAT"}  # TensorRT's names
GRAPHS = "graphs"  # folder of an artifact whose plans hold no weights: the graphs to take them from
PLUGIN_FILES = "kernels/"  # folder of an artifact whose attention is our own plugin


def load_module(name: str) -> Any:
    """`tensorrt`, `tensorrt_rtx` or `tensorrt_lean`: their calls are the same."""
    return importlib.import_module(name)


def make_logger(module: Any) -> Any:
    """A logger that keeps the last warnings and errors, so that a message can quote them."""

    class Logger(module.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            module.ILogger.__init__(self)
            self.lines: list[str] = []

        def log(self, severity: Any, text: str) -> None:
            if int(severity) <= int(module.Logger.WARNING):  # the worst are the lowest
                self.lines = [*self.lines[-9:], text.strip()]

    return Logger()


def expected_tensors(manifest: Manifest, role: str) -> tuple[set[str], set[str]]:
    """Names of a role's inputs and outputs."""
    sizes = manifest.sizes
    if manifest.encoder is not None:
        return set(manifest.encoder.inputs()), set(manifest.encoder.outputs())
    encoded = names.encoded_names(sizes)
    if role == "encoder":
        return set(names.encoder_inputs()), set(encoded)
    given = {*names.step_inputs(sizes), *names.past_names(sizes), *encoded}
    return given, {names.LOGITS, names.NEXT_IDS, names.NEXT_LOG_PROBS, *names.present_names(sizes)}


class LoadedEngine:
    """One role's engine.

    Attributes:
        engine: TensorRT's `ICudaEngine`; kept as long as its contexts.
        role: `encoder` or `decoder`.
        aliased: whether its caches are written in place: outputs are then bound to the memory of their inputs.
        activations: bytes that an execution context works in, over all profiles.
    """

    def __init__(self, module: Any, runtime: Any, logger: Any, bundle: Bundle, artifact: Artifact, role: str) -> None:
        self.module, self.logger, self.role = module, logger, role
        self.manifest, self.sizes, self.path = bundle.manifest, bundle.manifest.sizes, artifact.graphs[role]
        self.subject = f"artifact {artifact.name} of bundle {bundle.folder}"
        self.engine: trt.ICudaEngine = self.deserialize(runtime, bundle.folder / self.path)
        if artifact.engine is not None and artifact.engine.stripped:
            self.put_weights_back(bundle.folder / artifact.name / GRAPHS / f"{role}.onnx")
        self.check_tensors({self.engine.get_tensor_name(i) for i in range(self.engine.num_io_tensors)})
        if role == "decoder" and artifact.engine is not None:
            self.check_caches(artifact.engine)
        self.aliased = role == "decoder" and self.writes_in_place(artifact)

    def deserialize(self, runtime: Any, path: Path) -> Any:
        engine = runtime.deserialize_cuda_engine(path.read_bytes())
        if engine is None:
            reader = f"{self.module.__name__} {self.module.__version__}"
            reason = f"{self.path} is no plan that {reader} can read{self.said()}"
            raise BundleError(self.subject, [f"{reason}; optimize the bundle anew"])
        return engine

    def put_weights_back(self, graph: Path) -> None:
        """Fill a plan that was built without its weights from the graph that it was built from."""
        module = self.module
        if not hasattr(module, "OnnxParserRefitter"):
            raise BackendUnavailableError(
                f"{self.subject}: its plans hold no weights, which {module.__name__} cannot put back: install tensorrt"
            )
        refitter = module.Refitter(self.engine, self.logger)
        parser = module.OnnxParserRefitter(refitter, self.logger)
        if not parser.refit_from_file(str(graph)) or not refitter.refit_cuda_engine():
            reason = f"the weights of {graph} do not fit {self.path}{self.said()}"
            raise BundleError(self.subject, [f"{reason}; optimize the bundle anew"])

    def said(self) -> str:
        """The last thing that TensorRT complained about."""
        return f": {self.logger.lines[-1]}" if self.logger.lines else ""

    def check_tensors(self, found: set[str]) -> None:
        """Refuse an engine whose tensors are not the contract's: a parser drops what it does not understand."""
        inputs, outputs = expected_tensors(self.manifest, self.role)
        problems = []
        if missing := sorted((inputs | outputs) - found):
            problems.append(f"{self.path} lacks {', '.join(missing)}")
        if unknown := sorted(found - inputs - outputs):
            problems.append(f"{self.path} has {', '.join(unknown)}, which no {self.role} has")
        if problems:
            raise BundleError(self.subject, [*problems, "optimize the bundle anew"])

    def check_caches(self, record: Engine) -> None:
        """Refuse an engine whose caches are not as they are recorded: memory is taken by the record."""
        sizes, wanted = self.sizes, getattr(self.module.DataType, DATA_TYPES[record.dtype])
        shape = (sizes.num_kv_heads, record.capacity, sizes.head_dim)
        problems = []
        for name in names.past_names(sizes):
            dims, dtype = self.engine.get_tensor_shape(name), self.engine.get_tensor_dtype(name)
            found = tuple(int(dims[i]) for i in range(1, len(dims)))
            if found != shape or dtype != wanted:
                problems.append(f"{self.path} has {name} as {dtype} {found} a row, the record says {wanted} {shape}")
        if problems:
            raise BundleError(self.subject, [*problems, "optimize the bundle anew"])

    def writes_in_place(self, artifact: Artifact) -> bool:
        """Whether every cache output shares its input's memory: asked at every load, of engines that can tell.

        Versions before 10.15 cannot be asked, and have no cache layer that would. Later ones tell of that layer, not of
        plugins (reported with 11.2, not run here): ours is recorded. Its caches are declared to alias their inputs,
        for which TensorRT may copy. One memory for both is right whether it copies or passes the addresses that were
        bound; two are right only where it copies.
        """
        past, present = names.past_names(self.sizes), names.present_names(self.sizes)
        if artifact.engine is not None and artifact.engine.caches_in_place:
            return True
        ask = getattr(self.engine, "get_aliased_input_tensor", None)
        if ask is None:
            return False
        origins = [ask(name) for name in present]
        if not any(origins):
            return False
        if origins != past:
            wrong = ", ".join(f"{a} writes into {b or 'nothing'}" for a, b in zip(present, origins, strict=True))
            raise BundleError(self.subject, [f"{self.path} mixes up its caches: {wrong}; optimize the bundle anew"])
        return True

    @property
    def activations(self) -> int:
        return int(self.engine.device_memory_size_v2)

    def context(self, profile: int, device: Any, activations: tuple[int, int], config: Any = None) -> Any:
        """An execution context for one profile, which works in memory that others use before and after it.

        Args:
            profile: its number.
            device: the GPU, active in this thread.
            activations: address and size of the memory that it works in.
            config: RTX's runtime configuration.
        """
        strategy = self.module.ExecutionContextAllocationStrategy.USER_MANAGED
        context = self.engine.create_execution_context(strategy if config is None else config)
        if context is None:
            raise DeviceError(f"{self.subject}: no execution context for {self.path}{self.said()}")
        context.set_device_memory(*activations)
        if profile and not context.set_optimization_profile_async(profile, int(device.stream)):
            raise BundleError(self.subject, [f"{self.path} has no profile {profile}; optimize the bundle anew"])
        device.synchronize()
        return context


def execute(context: Any, stream: Any, logger: Any) -> None:
    """Queue one execution.

    Raises:
        DeviceError: TensorRT refuses; what it said is quoted.
    """
    if not context.execute_async_v3(int(stream)):
        said = f": {logger.lines[-1]}" if logger.lines else ""
        raise DeviceError(f"TensorRT could not execute{said}")
