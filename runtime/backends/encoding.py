"""What runs an encoder that does not write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from edgeformer.runtime.backends import Floats, Ints, backend_of
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.cores import Cores
from edgeformer.runtime.encoder_records import EncoderRecord
from edgeformer.runtime.errors import BackendUnavailableError


class EncoderExecutor(Protocol):
    """A loaded encoder; it may run in several threads at once."""

    def run(self, given: Mapping[str, Ints], wanted: Sequence[str]) -> Mapping[str, Floats]:
        """Outputs of the graph that `edgeformer.runtime.encoder_records` describes.

        Args:
            given: every input, right-padded.
            wanted: which outputs.
        """


@runtime_checkable
class EncodingBackend(Protocol):
    """A backend that runs encoders."""

    name: str

    def load_encoder(self, bundle: Bundle, artifact: Artifact, record: EncoderRecord, cores: Cores) -> EncoderExecutor:
        """Load an artifact of an encoder, to run on these cores."""


def encoding_backend_of(artifact: Artifact) -> EncodingBackend:
    """The backend that runs an encoder's artifact.

    Raises:
        BackendUnavailableError: it is not installed, lacks a library, or runs no encoders.
    """
    backend = backend_of(artifact)
    if not isinstance(backend, EncodingBackend):
        raise BackendUnavailableError(f"artifact {artifact.name} cannot run: backend {backend.name} runs no encoders")
    return backend
