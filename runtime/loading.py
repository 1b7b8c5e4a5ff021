"""From a bundle's folder to a model that runs here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from edgeformer.runtime.backends import lacking
from edgeformer.runtime.bundle import Artifact, Bundle, open_bundle, read_manifest
from edgeformer.runtime.cores import Cores, Spin
from edgeformer.runtime.encoders import EncoderModel
from edgeformer.runtime.errors import BackendUnavailableError, BundleError, NotEnoughMemoryError, TargetError
from edgeformer.runtime.model import Model

# The best first: an engine for this machine's GPU, ONNX Runtime on a GPU, and on the CPU; then what rounds least.
BACKENDS = ("tensorrt", "ort-cuda", "ort-cpu")
PRECISIONS = ("fp16", "bf16", "fp32", "int8", "int8-rows", "auto", "int4")
ON_CPU = ("fp32", *(precision for precision in PRECISIONS if precision != "fp32"))  # 16 bits are no faster there
PORTABLE = "onnx"

M = TypeVar("M", Model, EncoderModel)


def load(bundle: str | Path, artifact: str | None = None, *, threads: int | None = None, spin: Spin = "steps") -> Model:
    """Load the best artifact of a bundle that runs here; `model.artifact` says which.

    Args:
        bundle: the bundle's folder.
        artifact: name of the artifact to load, as `edgeformer inspect` lists them; the best that runs here where it is
            None: an engine for the GPU that is here, then ONNX Runtime on it, then on the CPU, then the portable
            graphs; of several, the one that rounds least. `model.passed_over` says why it is none of the others.
        threads: cores to use; all where it is None.
        spin: whether threads that wait for work keep their core busy: while a step runs (`steps`), between steps as
            well (`always`: the least latency on a machine with nothing else to do), or not at all (`never`: the least
            energy, and the core for others).

    Raises:
        BundleError: the bundle is missing, damaged or too new; every problem is named. Or it holds an encoder, which
            `load_encoder` loads.
        TargetError: it holds no such artifact.
        OptionError: there are no such threads; `spin` is none of the three.
        BackendUnavailableError: what the artifact needs is not installed, or nothing runs here.
        NotEnoughMemoryError: the artifact of this name does not fit into the memory that is free.
    """
    require_kind(Path(bundle), encoder=False)
    cores = Cores(threads, spin)
    return opened(Path(bundle), artifact, lambda found, chosen: Model(found, chosen, cores))


def load_encoder(
    bundle: str | Path, artifact: str | None = None, *, threads: int | None = None, spin: Spin = "steps"
) -> EncoderModel:
    """As `load`, for a bundle whose model reads and does not write: a sentence encoder, a classifier and the like.

    Raises:
        BundleError, TargetError, OptionError, BackendUnavailableError: as `load`; or the bundle holds a model that
            generates.
    """
    require_kind(Path(bundle), encoder=True)
    cores = Cores(threads, spin)
    return opened(Path(bundle), artifact, lambda found, chosen: EncoderModel(found, chosen, cores))


def require_kind(folder: Path, *, encoder: bool) -> None:
    """Refuse a bundle for the other function before any of its files is read: hashing them may take minutes.

    Raises:
        BundleError: it is missing, damaged or too new; or it holds a model of the other kind.
    """
    kind = read_manifest(folder).kind
    if (kind == "encoder") == encoder:
        return
    what = "an encoder, which does not generate: use `load_encoder`"
    if encoder:
        what = f"a model of kind {kind}, which generates: use `load`"
    raise BundleError(f"bundle {folder}", [f"it holds {what}"])


def opened(folder: Path, name: str | None, open_model: Callable[[Bundle, Artifact], M]) -> M:
    """The model of the artifact of this name, or of the best that runs here."""
    if name is not None:
        return open_artifact(folder, choose(folder, name), open_model)
    artifacts, passed_over = ranked(folder), dict[str, str]()
    while True:
        chosen = best(folder, artifacts, passed_over)
        try:
            model = open_artifact(folder, chosen, open_model)
        except (BackendUnavailableError, NotEnoughMemoryError) as error:  # what only loading shows
            passed_over[chosen.name] = str(error)
            continue
        after = [other.name for other in artifacts if other.name not in passed_over and other != chosen]
        model.passed_over = passed_over | dict.fromkeys(after, f"{chosen.name} comes before it")
        return model


def open_artifact(folder: Path, artifact: Artifact, open_model: Callable[[Bundle, Artifact], M]) -> M:
    return open_model(open_bundle(folder, artifacts=lambda candidate: candidate.name == artifact.name), artifact)


def choose(folder: Path, name: str | None) -> Artifact:
    """The artifact of this name, the best that should run here where it is None.

    Raises:
        TargetError: there is none of this name.
        BackendUnavailableError: nothing runs here; the reason of each is named.
    """
    if name is None:
        return best(folder, ranked(folder), {})
    artifacts = read_manifest(folder).artifacts
    for artifact in artifacts:
        if artifact.name == name:
            return artifact
    raise TargetError(f"bundle {folder} has no artifact {name!r}; it has: {', '.join(a.name for a in artifacts)}")


def best(folder: Path, artifacts: list[Artifact], passed_over: dict[str, str]) -> Artifact:
    """The best artifact that is not passed over and lacks nothing; those before it are added with what they lack.

    Raises:
        BackendUnavailableError: there is none; the reason of each is named.
    """
    for artifact in artifacts:
        if artifact.name in passed_over:
            continue
        if (reason := lacking(artifact)) is None:
            return artifact
        passed_over[artifact.name] = reason
    reasons = [f"{name}: {reason}" for name, reason in passed_over.items()]
    raise BackendUnavailableError(f"nothing in bundle {folder} can run here: {'; '.join(reasons) or 'it is empty'}")


def ranked(folder: Path) -> list[Artifact]:
    """A bundle's artifacts, the best first."""
    return sorted(read_manifest(folder).artifacts, key=rank)


def rank(artifact: Artifact) -> tuple[bool, int, int]:
    def place(name: str, order: tuple[str, ...]) -> int:
        return order.index(name) if name in order else len(order)

    precisions = ON_CPU if artifact.backend == "ort-cpu" else PRECISIONS
    return artifact.name == PORTABLE, place(artifact.backend, BACKENDS), place(artifact.precision, precisions)
