"""An artifact to make: what every kind of target is given, and what it gives back."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir
from onnx_ir.passes import PassError, PreconditionError

from edgeformer.exporter.external_weights import load_graph
from edgeformer.exporter.parity import OnChecks
from edgeformer.exporter.quantization_options import QuantizationOptions
from edgeformer.exporter.records import Progress
from edgeformer.exporter.targets import Choice
from edgeformer.exporter.tensorrt.options import EngineOptions
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.errors import TargetError


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """What a maker of artifacts works from.

    Attributes:
        bundle: the bundle as it is.
        portable: its artifact to begin with.
        choice: the target, the precision, and what follows from them.
        folder: an empty folder for the artifact's files, where the bundle will be.
        options: what was asked of an engine.
        quantization: what was asked of weights in few bits.
        progress: called with the name of each part of the work as it begins.
        on_checks: called with what was compared with PyTorch before an engine is built.
        on_build: called with how far the building of an engine is, from 0 to 1, and with its phase.
    """

    bundle: Bundle
    portable: Artifact
    choice: Choice
    folder: Path
    options: EngineOptions
    quantization: QuantizationOptions
    progress: Progress
    on_checks: OnChecks
    on_build: Callable[[float, str], None]

    @property
    def name(self) -> str:
        return self.folder.name

    def graph(self, role: str) -> ir.Model:
        """A portable graph, to be rewritten."""
        return load_graph(self.bundle.folder / self.portable.graphs[role])

    def artifact(self, roles: Iterable[str], suffix: str, made_with: Mapping[str, str], **more: Any) -> Artifact:
        """The record of what was made: a file for each role in the job's folder; `more` are fields of Artifact."""
        return Artifact(
            name=self.name,
            target=self.choice.target.name,
            backend=self.choice.target.backend,
            precision=self.choice.precision,
            graphs={role: f"{self.name}/{role}.{suffix}" for role in roles},
            files={},
            versions=made_with,
            **more,
        )

    @contextlib.contextmanager
    def rewriting(self, role: str) -> Iterator[None]:
        """Says that a graph is rewritten, and why it cannot be.

        Raises:
            TargetError: a pass found something else than it expects.
        """
        self.progress(f"rewriting the {role} graph")
        try:
            yield
        except (PassError, PreconditionError) as error:
            reason = error.__cause__ if isinstance(error.__cause__, PreconditionError) else error
            target = self.choice.target.name
            raise TargetError(f"target {target} cannot take the {role} of {self.bundle.folder}: {reason}") from error


Maker = Callable[[Job], Artifact]  # writes into the job's folder; the artifact's `files` are recorded by its caller
