"""TensorRT engines on NVIDIA GPUs: `tensorrt`, `tensorrt_rtx` and `tensorrt_lean` alike, through cuda-python.

Nothing of NVIDIA's is imported before an artifact asks for it. Built against the vendor's documentation and run on
stand-ins of the driver and of the libraries; what ran on a GPU is told in `docs/gpu.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.cores import Cores
from edgeformer.runtime.encoder_records import EncoderRecord

if TYPE_CHECKING:
    from edgeformer.runtime.backends.tensorrt.encoder import TensorRTEncoder
    from edgeformer.runtime.backends.tensorrt.executor import TensorRTExecutor


class TensorRT:
    """Backend `tensorrt`."""

    name = "tensorrt"

    def unavailable(self, artifact: Artifact | None = None) -> str | None:
        from edgeformer.runtime.backends.tensorrt import fitness

        return fitness.unavailable() if artifact is None else fitness.unfit(artifact)

    def load(self, bundle: Bundle, artifact: Artifact, cores: Cores) -> TensorRTExecutor:
        """Deserialize the plans; `cores` is not read, since a GPU computes.

        Raises:
            BackendUnavailableError: no driver, no GPU, or another than the plans are for; both sides are named.
            BundleError: a plan that cannot be read, or that is not one of a step graph.
            NotEnoughMemoryError: the engines do not fit into the GPU's memory.
        """
        from edgeformer.runtime.backends.tensorrt.executor import TensorRTExecutor

        return TensorRTExecutor(bundle, artifact)

    def load_encoder(self, bundle: Bundle, artifact: Artifact, record: EncoderRecord, cores: Cores) -> TensorRTEncoder:
        """Deserialize an encoder's plan, as `load` does.

        Raises:
            BackendUnavailableError, BundleError, NotEnoughMemoryError: as `load`.
        """
        from edgeformer.runtime.backends.tensorrt.encoder import TensorRTEncoder

        return TensorRTEncoder(bundle, artifact, record)
