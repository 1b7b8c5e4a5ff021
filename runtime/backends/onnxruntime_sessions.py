"""ONNX Runtime's sessions, and arrays bound to them: what its backends share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime import native
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.cores import Cores, Spin
from edgeformer.runtime.errors import BundleError

if TYPE_CHECKING:
    import onnxruntime

CPU = "CPUExecutionProvider"
# ONNX Runtime fuses Add and LayerNormalization into a kernel that takes up to seven times as long as the two.
SLOWER_FUSIONS = ["SkipLayerNormFusion"]
SPINNING: dict[Spin, dict[str, str]] = {
    "steps": {"session.force_spinning_stop": "1"},
    "always": {},
    "never": {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"},
}
TYPES: dict[str, type[np.floating[Any]]] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


def installed_version() -> str | None:
    """Of whichever distribution brought the module; None if its metadata is not there."""
    for distribution in ("onnxruntime", "onnxruntime-gpu"):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None


class Sessions:
    """Opens the graphs of an artifact.

    Args:
        cores: how many, and how their threads wait.
        providers: what runs the operators, the preferred first, as ONNX Runtime takes them.
    """

    def __init__(self, bundle: Bundle, artifact: Artifact, cores: Cores, providers: Sequence[Any]) -> None:
        import onnxruntime

        self.folder, self.graphs, self.providers = bundle.folder, artifact.graphs, list(providers)
        self.slower_fusions = SLOWER_FUSIONS if self.providers == [CPU] else None
        self.options = onnxruntime.SessionOptions()
        if self.providers == [CPU]:
            native.register(self.options)
        self.options.log_severity_level = 3
        self.options.intra_op_num_threads = cores.count
        # Each session has its own threads, which would otherwise go on spinning on the cores that the next one needs.
        for entry, given in SPINNING[cores.spin].items():
            self.options.add_session_config_entry(entry, given)

    def open(self, role: str) -> onnxruntime.InferenceSession:
        """The session of a role's graph.

        Raises:
            BundleError: ONNX Runtime does not take it.
        """
        import onnxruntime

        path = self.graphs[role]
        try:
            return onnxruntime.InferenceSession(
                self.folder / path, self.options, providers=self.providers, disabled_optimizers=self.slower_fusions
            )
        except Exception as error:  # onnxruntime raises classes of its own that share no other root
            raise BundleError(f"bundle {self.folder}", [f"{path} does not load: {error}"]) from error


def input_type(session: onnxruntime.InferenceSession, name: str) -> type[np.floating[Any]]:
    """The element type of an input in floating point."""
    return next(TYPES[value.type] for value in session.get_inputs() if value.name == name)


def on_host(array: NDArray[Any]) -> onnxruntime.OrtValue:
    """ONNX Runtime's value over the memory of an array, which must be in one piece: to bind it costs little."""
    import onnxruntime

    if not array.flags.c_contiguous:
        raise ValueError(f"an array of shape {array.shape} is not in one piece of memory")
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


class Block:
    """Arrays of one shape in one piece of memory, the first axis counting them, with a value over each to bind."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array, self.nbytes = array, array.nbytes
        self.values = [on_host(part) for part in array]


class Binding:
    """Arrays and device buffers bound to a session by address: kept alive here, read and written in place.

    Attributes:
        run: runs the session.
    """

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self.binding = session.io_binding()
        self.run: Callable[[], None] = partial(session.run_with_iobinding, self.binding)
        self.alive: dict[str, Any] = {}

    def inputs(self, values: Mapping[str, NDArray[Any] | onnxruntime.OrtValue]) -> None:
        """Bind arrays of the host, or buffers of ONNX Runtime. A session on a GPU copies an array when it is bound."""
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                self.binding.bind_input(name, "cpu", 0, value.dtype.type, value.shape, value.ctypes.data)
            else:
                self.binding.bind_ortvalue_input(name, value)
        self.alive |= values

    def outputs(self, values: Mapping[str, NDArray[Any] | onnxruntime.OrtValue]) -> None:
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                self.binding.bind_output(name, "cpu", 0, value.dtype.type, value.shape, value.ctypes.data)
            else:
                self.binding.bind_ortvalue_output(name, value)
        self.alive |= values

    def new_outputs(self, names: Sequence[str], device: str) -> None:
        """Let a run make these outputs on a device."""
        for name in names:
            self.binding.bind_output(name, device)

    def made(self) -> list[onnxruntime.OrtValue]:
        """The outputs in the order of their binding."""
        return list(self.binding.get_outputs())
