"""The bundle on disk: `bundle.json` and the files it names, read with every problem reported at once.

A bundle is a folder that can be copied, moved, checked and loaded without knowing how it was made. `bundle.json` names
every file with its size and SHA-256; paths are relative, with forward slashes, and stay inside the folder.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast, get_args

from edgeformer.runtime.encoder_records import EncoderRecord, parse_encoder
from edgeformer.runtime.engine_records import senseless_engine
from edgeformer.runtime.errors import BundleError
from edgeformer.runtime.names import Sizes

SCHEMA_VERSION = 3  # 2: artifacts may be engines; 3: models of other kinds. Older ones are read as well
MANIFEST = "bundle.json"
Kind = Literal["encoder-decoder", "decoder", "encoder"]
ROLES: dict[str, tuple[str, ...]] = {
    "encoder-decoder": ("encoder", "decoder"),
    "decoder": ("decoder",),
    "encoder": ("encoder",),
}


@dataclasses.dataclass(frozen=True, slots=True)
class FileRecord:
    """What a file must be: its size in bytes and the hexadecimal SHA-256 of its content."""

    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True, slots=True)
class Tokens:
    """Ids with a meaning.

    Attributes:
        pad: fills up shorter rows; any id will do.
        start: the decoder's first input; of a language model, where its prompt is empty.
        ends: each of these ends a text.
    """

    pad: int
    start: int
    ends: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class GoldenSample:
    """What PyTorch gave for a source, or for a language model's prompt, when the bundle was made.

    `greedy` and `beam` hold ids without the end token; the scores are what the runtime's results call `score`:
    the sum of log-probabilities, end token included, divided by the number of tokens to the power of the length penalty
    (0 for greedy, 1 for beam 4).
    """

    source_ids: tuple[int, ...]
    greedy: tuple[int, ...]
    greedy_score: float
    beam: tuple[int, ...]
    beam_score: float
    max_new_tokens: int


Limits = tuple[int, int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Engine:
    """What the plans of an artifact were built with and for: nothing else runs them.

    Attributes:
        module: the package that built them, `tensorrt` or `tensorrt_rtx`.
        version: its version, such as 10.13.3.9.
        compute_capabilities: GPUs that they run on, such as 8.9; none where they are for the GPU that built them.
        platform: operating system and processor, such as linux-x86_64.
        graphs: SHA-256 of the ONNX graph, with its weights, that each role's plan was built from.
        version_compatible: whether the lean runtime of that version runs them as well.
        hardware_compatible: whether later GPUs than those named run them as well.
        stripped: whether the weights are left out, to be put back when it is loaded.
        dtype: of caches and of the encoder's keys and values: float16, bfloat16 or float32.
        capacity: the most tokens that a row's cache holds.
        profiles: of each role, in the engine's order: least, usual and most of every symbolic dimension.
        memory: bytes of activations that each role's plan asks for, where it is known.
        streamable: whether its weights may stay in the host's memory and be streamed where they do not fit.
        caches_in_place: whether the step graph's caches are written in place, where the engine cannot be asked: it does
            not tell of plugins. None where it can.
    """

    module: str
    version: str
    compute_capabilities: tuple[str, ...]
    platform: str
    graphs: Mapping[str, str]
    version_compatible: bool
    hardware_compatible: bool
    stripped: bool
    dtype: str
    capacity: int
    profiles: Mapping[str, tuple[Mapping[str, Limits], ...]]
    memory: Mapping[str, int]
    streamable: bool = False
    caches_in_place: bool | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Artifact:
    """Graphs made for a target.

    Attributes:
        name: its folder, `onnx` for the portable graphs.
        target: the capability row it was made for.
        backend: the backend that runs it.
        precision: how weights are stored: fp32, int8.
        graphs: path of the file for each of the roles that the model's kind has.
        files: every file it needs, with what each must be.
        versions: packages that made it.
        needs: the least version of each package that runs it.
        shared_sources: whether one source may serve several consecutive rows of the step graph.
        long_steps_need_empty_caches: whether several new tokens per row are taken by empty caches only.
        engine: what its plans were built with and for, where `graphs` are engine plans.
    """

    name: str
    target: str
    backend: str
    precision: str
    graphs: Mapping[str, str]
    files: Mapping[str, FileRecord]
    versions: Mapping[str, str]
    needs: Mapping[str, str]
    shared_sources: bool = False
    long_steps_need_empty_caches: bool = False
    engine: Engine | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Manifest:
    """The content of `bundle.json`.

    Attributes:
        model_type: the family, as config.json names it; of a module of one's own, its class.
        kind: `encoder-decoder`, `decoder` (a language model) or `encoder`.
        encoder: what the outputs of an `encoder` are, and its samples; None for models that generate.
    """

    edgeformer_version: str
    model_type: str
    kind: Kind
    sizes: Sizes
    tokens: Tokens
    files: Mapping[str, FileRecord]
    artifacts: tuple[Artifact, ...]
    golden: tuple[GoldenSample, ...]
    encoder: EncoderRecord | None = None

    def to_json(self) -> str:
        values = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)}
        return json.dumps(values, indent=1) + "\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Bundle:
    """A checked bundle: its folder and its manifest."""

    folder: Path
    manifest: Manifest

    def artifact(self, name: str) -> Artifact | None:
        return next((artifact for artifact in self.manifest.artifacts if artifact.name == name), None)

    def read_json(self, name: str) -> dict[str, Any]:
        """One of the checkpoint's own JSON files; empty where the checkpoint had none."""
        if name not in self.manifest.files:
            return {}
        try:
            content = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except ValueError as error:
            raise BundleError(f"bundle {self.folder}", [f"{name} is not JSON: {error}"]) from error
        if not isinstance(content, dict):
            raise BundleError(f"bundle {self.folder}", [f"{name} holds {type(content).__name__}, expected an object"])
        return content


def open_bundle(folder: Path, *, artifacts: Callable[[Artifact], bool] = lambda artifact: True) -> Bundle:
    """Read a bundle and check every file of the artifacts that are asked for.

    Args:
        folder: the bundle.
        artifacts: which artifacts' files to check; the shared files are always checked.

    Raises:
        BundleError: with everything that is wrong: no such folder, a damaged or newer manifest, files that are missing,
            of another size, or with another hash.
    """
    subject = f"bundle {folder}"
    manifest = read_manifest(folder)
    records = dict(manifest.files)
    for artifact in manifest.artifacts:
        if artifacts(artifact):
            records |= artifact.files
    if problems := [problem for name, record in records.items() if (problem := wrong_file(folder, name, record))]:
        raise BundleError(subject, [*problems, "copy the bundle again, or export it anew"])
    return Bundle(folder, manifest)


def read_manifest(folder: Path) -> Manifest:
    """Read `bundle.json` without looking at the files that it names.

    Raises:
        BundleError: it is missing, damaged, or newer than this edgeformer.
    """
    subject = f"bundle {folder}"
    if not folder.is_dir():
        raise BundleError(subject, ["there is no such folder; `edgeformer export CHECKPOINT -o BUNDLE` makes one"])
    try:
        values = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BundleError(subject, [f"{MANIFEST} is missing, so this is not a bundle"]) from None
    except OSError as error:
        raise BundleError(subject, [f"{MANIFEST} cannot be read: {error.strerror}"]) from error
    except (ValueError, RecursionError) as error:
        raise BundleError(subject, [f"{MANIFEST} is damaged: {error}"]) from error
    version = values.get("schema_version") if isinstance(values, dict) else None
    if not isinstance(version, int):
        raise BundleError(subject, [f"{MANIFEST} names no schema_version, so it is not a bundle's"])
    if version > SCHEMA_VERSION:
        raise BundleError(
            subject,
            [f"its schema is {version}, this edgeformer reads up to {SCHEMA_VERSION}: upgrade edgeformer"],
        )
    try:
        return parse_manifest(values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise BundleError(subject, [f"{MANIFEST} is damaged: {reason}"]) from error


def parse_manifest(values: Mapping[str, Any]) -> Manifest:
    manifest = Manifest(
        edgeformer_version=str(values["edgeformer_version"]),
        model_type=str(values["model_type"]),
        kind=parse_kind(values.get("kind", "encoder-decoder")),
        sizes=parse_sizes(values["sizes"], values["schema_version"]),
        tokens=parse_tokens(values["tokens"]),
        files=parse_files(values["files"]),
        artifacts=tuple(map(parse_artifact, values["artifacts"])),
        golden=tuple(parse_golden(item) for item in values["golden"]),
        encoder=parse_encoder(encoder) if (encoder := values.get("encoder")) is not None else None,
    )
    if problems := [*senseless_numbers(manifest), *senseless_artifacts(manifest)]:
        raise ValueError("; ".join(problems))
    return manifest


def parse_kind(value: str) -> Kind:
    for kind in get_args(Kind):
        if value == kind:
            return cast("Kind", kind)
    raise ValueError(f"kind is {value!r}, expected one of {', '.join(ROLES)}")


def parse_sizes(values: Mapping[str, Any], schema_version: int) -> Sizes:
    if schema_version < 3:  # when both sides of every model shared their vocabulary and positions
        source = {"source_vocab_size": values["vocab_size"], "max_source_positions": values["max_positions"]}
        return Sizes(**values, **source)
    return Sizes(**values)


def parse_tokens(values: Mapping[str, Any]) -> Tokens:
    ends = values["ends"] if "ends" in values else [values["end"]]  # `end` before schema 3
    return Tokens(pad=values["pad"], start=values["start"], ends=tuple(ends))


def senseless_numbers(manifest: Manifest) -> list[str]:
    sizes, tokens = dataclasses.asdict(manifest.sizes), manifest.tokens
    least = {name: int(name not in ("source_vocab_size", "max_source_positions")) for name in sizes}
    if manifest.kind == "encoder-decoder":
        least = dict.fromkeys(sizes, 1)
    if wrong := [
        f"{name} is {n!r}, expected a whole number of at least {least[name]}"
        for name, n in sizes.items()
        if type(n) is not int or n < least[name]
    ]:
        return wrong
    if manifest.kind != "encoder-decoder" and manifest.sizes.has_source:
        return [f"a model of kind {manifest.kind!r} has no source, its sizes have one"]
    if (manifest.kind == "encoder") is (manifest.encoder is None):
        return [f"a model of kind {manifest.kind!r} is described as another"]
    known = range(manifest.sizes.vocab_size)
    meanings = [("pad", tokens.pad), ("start", tokens.start), *(("end", end) for end in tokens.ends)]
    return [f"{name} token is {i!r}, outside the vocabulary" for name, i in meanings if i not in known]


def senseless_artifacts(manifest: Manifest) -> Iterator[str]:
    names = [artifact.name for artifact in manifest.artifacts]
    yield from (f"artifact {name} is there twice" for name in sorted(set(names)) if names.count(name) > 1)
    for artifact in manifest.artifacts:
        roles = ROLES[manifest.kind]
        yield from (f"artifact {artifact.name} has no {role}" for role in roles if role not in artifact.graphs)
        for path in artifact.graphs.values():
            if path not in artifact.files:
                yield f"artifact {artifact.name} names {path}, but does not record it"
        if artifact.engine is not None:
            yield from (f"artifact {artifact.name}: {problem}" for problem in senseless_engine(artifact.engine, roles))


def parse_artifact(values: Mapping[str, Any]) -> Artifact:
    engine = values.get("engine")
    files = parse_files(values["files"])
    return Artifact(**{**values, "files": files, "engine": parse_engine(engine) if engine is not None else None})


def parse_engine(values: Mapping[str, Any]) -> Engine:
    profiles = {
        role: tuple({name: parse_limits(name, limits) for name, limits in profile.items()} for profile in several)
        for role, several in values["profiles"].items()
    }
    capabilities = tuple(map(str, values["compute_capabilities"]))
    return Engine(**{**values, "compute_capabilities": capabilities, "profiles": profiles})


def parse_limits(name: str, values: list[int]) -> Limits:
    least, usual, most = map(int, values)
    if not 1 <= least <= usual <= most:
        raise ValueError(f"{name} goes from {least} by {usual} to {most}, expected rising numbers of at least 1")
    return least, usual, most


def parse_golden(values: Mapping[str, Any]) -> GoldenSample:
    ids = {name: tuple(map(int, values[name])) for name in ("source_ids", "greedy", "beam")}
    return GoldenSample(**{**values, **ids})


def parse_files(values: Mapping[str, Mapping[str, Any]]) -> dict[str, FileRecord]:
    for name in values:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
            raise ValueError(f"path {name!r} leaves the bundle")
        if "\0" in name:
            raise ValueError(f"path {name!r} is none")
    records = {name: FileRecord(**record) for name, record in values.items()}
    for name, record in records.items():
        if type(record.bytes) is not int or not isinstance(record.sha256, str):
            raise ValueError(f"{name} is recorded as {record}")
    return records


def wrong_file(folder: Path, name: str, record: FileRecord) -> str | None:
    """What is wrong with a file, or None."""
    path = folder / name
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            return f"{name} leads out of the bundle"
        size = path.stat().st_size
        if size != record.bytes:
            return f"{name} has {size} bytes, expected {record.bytes}"
        return None if sha256(path) == record.sha256 else f"{name} has another SHA-256 than {MANIFEST} records"
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"
    except RuntimeError as error:  # links in a circle, before Python 3.13
        return f"{name} cannot be read: {error}"


def record_file(path: Path) -> FileRecord:
    """Size and hash of a file as it is now."""
    return FileRecord(path.stat().st_size, sha256(path))


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
