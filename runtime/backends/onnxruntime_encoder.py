"""ONNX Runtime on the CPU for encoders that do not write: arrays bound by address, one call into its session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgeformer.runtime.backends import Floats, Ints
from edgeformer.runtime.backends.onnxruntime_long_sources import EncoderSessions
from edgeformer.runtime.backends.onnxruntime_sessions import CPU, Binding, Sessions
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.cores import Cores
from edgeformer.runtime.encoder_records import EncoderRecord


class OnnxRuntimeEncoder:
    """The graph of an encoder, loaded; it may run in several threads at once."""

    def __init__(self, bundle: Bundle, artifact: Artifact, record: EncoderRecord, cores: Cores) -> None:
        self.record = record
        sessions = Sessions(bundle, artifact, cores, [CPU])
        short = sessions.open("encoder")
        self.sessions = EncoderSessions(sessions, short, bundle.manifest.sizes.num_heads)
        self.inputs = {value.name for value in short.get_inputs()}  # a rewritten graph may need fewer

    def run(self, given: Mapping[str, Ints], wanted: Sequence[str]) -> dict[str, Floats]:
        """Some outputs for all inputs, as `edgeformer.runtime.backends.encoding.EncoderExecutor` says."""
        inputs, outputs = self.record.inputs(), self.record.outputs()
        extents = {dim: n for name, array in given.items() for dim, n in zip(inputs[name], array.shape, strict=True)}
        found: dict[str, Floats] = {
            name: np.empty([extents[dim] if isinstance(dim, str) else dim for dim in outputs[name]], np.float32)
            for name in wanted
        }
        session, more = self.sessions.of(extents["batch"], extents["source_len"])
        binding = Binding(session)
        binding.inputs({name: array for name, array in given.items() if name in self.inputs} | more)
        binding.outputs(found)
        binding.run()
        return found
