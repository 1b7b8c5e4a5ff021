"""The memory plan: what a load takes, what would fit, and a refusal with those numbers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from edgeformer.runtime import load, machine_memory, memory_needs
from edgeformer.runtime.bundle import Artifact, Engine, FileRecord, Manifest, read_manifest
from edgeformer.runtime.encoder_records import EncoderRecord
from edgeformer.runtime.errors import NotEnoughMemoryError, OptionError
from edgeformer.runtime.machine_memory import Free, available_memory
from edgeformer.runtime.memory_needs import needed
from edgeformer.runtime.memory_plan import largest, plan_memory, require, the_load

PLENTY = Free(1 << 40, "memory")
BOTH = {"batch": (1, 8, 64), "source_len": (1, 32, 256)}
ENGINE = Engine(
    module="tensorrt",
    version="11.4.0.1",
    compute_capabilities=("8.9",),
    platform="linux-x86_64",
    graphs={},
    version_compatible=False,
    hardware_compatible=False,
    stripped=False,
    dtype="float16",
    capacity=128,
    profiles={"encoder": (BOTH,), "decoder": (BOTH, BOTH)},
    memory={"encoder": 3_000_000, "decoder": 5_000_000},
)
PLANS = {f"engines/{role}.plan": FileRecord(10_000_000, "") for role in ("encoder", "decoder")}
REPORTS = {f"engines/report.{kind}": FileRecord(999, "") for kind in ("html", "json")}


@pytest.fixture
def manifest(tiny_bundle: Path) -> Manifest:
    return read_manifest(tiny_bundle)


@pytest.fixture
def cpu(manifest: Manifest) -> Artifact:
    return next(artifact for artifact in manifest.artifacts if artifact.name == "ort-cpu-fp32")


@pytest.fixture
def engines() -> Artifact:
    return Artifact("engines", "tensorrt-11", "tensorrt", "fp16", {}, {**PLANS, **REPORTS}, {}, {}, engine=ENGINE)


def test_an_engines_needs_are_its_weights_activations_caches_and_sources(manifest: Manifest, engines: Artifact) -> None:
    """2 layers, 2 heads of 16 in half precision; 8 rows and one to spare."""
    needs = plan_memory(manifest, engines, batch=8, source_len=64, free=PLENTY).needs
    token = 2 * 2 * 2 * 16 * 2
    assert needs.weights == 20_000_000
    assert needs.activations == 5_000_000  # one memory that both engines work in, one after the other
    assert needs.caches == 9 * 128 * token
    assert needs.sources == 9 * 64 * token
    assert 8 * 69 * 4 < needs.io < 50_000
    assert needs.total == 25_000_000 + needs.caches + needs.sources + needs.io


def test_bytes_of_caches_are_those_that_are_taken(manifest: Manifest) -> None:
    """The backend asks for its memory by the same arithmetic; every tensor begins at a multiple of 256 bytes."""
    for rows in (1, 2, 5, 16):
        for length in (1, 5, 31, 128):
            size = memory_needs.store_bytes(manifest.sizes, rows, 2, length, 2)
            assert size % (4 * 256) == 0
            least = 4 * (rows + 1) * 2 * length * 16 * 2
            assert least <= size <= least + 4 * 256 * length * 16 * 2


def test_an_older_engine_without_our_plugin_keeps_its_caches_twice(manifest: Manifest, engines: Artifact) -> None:
    load = the_load(manifest, engines, 1, None, None)
    once = needed(manifest, engines, load).caches
    old = dataclasses.replace(engines, engine=dataclasses.replace(ENGINE, version="10.13.3.9"))
    assert needed(manifest, old, load).caches == 2 * once
    for version in ("10.13.3.9", "11.4.0.1"):  # whatever the version, what is recorded holds
        for in_place, times in ((True, 1), (False, 2)):
            record = dataclasses.replace(ENGINE, version=version, caches_in_place=in_place)
            assert needed(manifest, dataclasses.replace(engines, engine=record), load).caches == times * once


def test_weights_that_can_be_streamed_need_no_room(manifest: Manifest, engines: Artifact) -> None:
    streamed = dataclasses.replace(engines, engine=dataclasses.replace(ENGINE, streamable=True))
    assert plan_memory(manifest, streamed, free=PLENTY).needs.weights == 0


@pytest.mark.parametrize("name", ["cpu", "engines"])
def test_the_largest_load_that_fits_is_exact(manifest: Manifest, name: str, request: pytest.FixtureRequest) -> None:
    artifact: Artifact = request.getfixturevalue(name)
    smallest = plan_memory(manifest, artifact, batch=1, capacity=1, source_len=16, free=PLENTY).needs.total
    free = Free(smallest + 150_000, "memory")
    plan = plan_memory(manifest, artifact, batch=3, capacity=20, source_len=16, free=free)
    assert plan.largest_batch
    assert plan.largest_capacity

    def fits(batch: int, capacity: int) -> bool:
        return plan_memory(manifest, artifact, batch=batch, capacity=capacity, source_len=16, free=free).fits

    assert fits(plan.largest_batch, 20)
    assert not fits(plan.largest_batch + 1, 20)
    assert fits(3, plan.largest_capacity)
    positions = 128 if artifact.engine else 32
    assert plan.largest_capacity == positions or not fits(3, plan.largest_capacity + 1)


def test_what_does_not_fit_is_refused_with_the_numbers(manifest: Manifest, engines: Artifact) -> None:
    free = Free(26_000_000, "memory that CPU and GPU share")
    plan = plan_memory(manifest, engines, batch=64, free=free)
    assert not plan.fits
    with pytest.raises(NotEnoughMemoryError) as caught:
        require(plan)
    message = str(caught.value)
    for part in (
        f"artifact engines needs {plan.needs.total / 1e6:.1f} MB for 64 rows of 128 tokens",
        "weights 20.0 MB",
        "activations 5.0 MB",
        "26.0 MB of memory that CPU and GPU share are free",
        f": {plan.largest_batch} rows would fit",
    ):
        assert part in message
    require(plan_memory(manifest, engines, batch=plan.largest_batch or 0, free=free))


def test_the_refusal_names_a_capacity_where_no_row_of_that_one_fits(manifest: Manifest, engines: Artifact) -> None:
    least = plan_memory(manifest, engines, capacity=1, source_len=8, free=PLENTY).needs.total
    plan = plan_memory(manifest, engines, source_len=8, free=Free(least + 10_000, "GPU memory"))
    assert plan.largest_batch == 0
    with pytest.raises(NotEnoughMemoryError, match=rf": {plan.largest_capacity} tokens a row would fit"):
        require(plan)
    with pytest.raises(NotEnoughMemoryError, match="end other programs, or take an artifact that stores weights"):
        require(plan_memory(manifest, engines, free=Free(1000, "GPU memory")))


def test_where_nobody_knows_what_is_free_nothing_is_refused(
    manifest: Manifest, engines: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_memory, "free_memory", lambda artifact: None)
    plan = plan_memory(manifest, engines, batch=64)
    assert (plan.fits, plan.free, plan.largest_batch, plan.largest_capacity) == (True, None, None, None)
    require(plan)


def test_a_model_of_a_long_context_is_planned_for_a_usual_one(manifest: Manifest, cpu: Artifact) -> None:
    sizes = dataclasses.replace(manifest.sizes, max_positions=131_072, max_source_positions=131_072)
    plan = plan_memory(dataclasses.replace(manifest, sizes=sizes), cpu, free=PLENTY)
    assert (plan.load.capacity, plan.load.source_len) == (512, 512)
    assert plan.largest_capacity == 131_072


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"batch": 0}, "batch is 0, expected at least 1"),
        ({"batch": 65}, "batch is 65, artifact engines takes up to 64"),
        ({"capacity": 129}, "capacity is 129, artifact engines takes up to 128"),
        ({"source_len": 257}, "source_len is 257, artifact engines takes up to 256"),
    ],
)
def test_loads_beyond_the_artifact_are_refused(
    manifest: Manifest, engines: Artifact, asked: dict[str, int], said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        plan_memory(manifest, engines, free=PLENTY, **asked)  # type: ignore[arg-type]


def test_a_cpus_load_that_cannot_fit_is_refused_before_the_library_is_asked(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_memory, "available_memory", lambda: 50_000)
    monkeypatch.setattr("edgeformer.runtime.backends.onnxruntime_cpu.OnnxRuntimeCpu.load", None)
    with pytest.raises(NotEnoughMemoryError, match=r"artifact ort-cpu-fp32 needs .* 0.1 MB of memory are free"):
        load(tiny_bundle, "ort-cpu-fp32")


def test_free_memory_is_what_programs_can_have(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable:   60 kB\n")
    assert available_memory(meminfo) == 60 * 1024
    assert available_memory(tmp_path / "none") is None


def test_the_largest_number_is_found_by_halving() -> None:
    for most in (1, 2, 7, 100):
        for limit in range(most + 3):
            assert largest(lambda n, limit=limit: n <= limit, most) == min(limit, most)  # type: ignore[misc]


# Other kinds


def test_a_language_model_has_no_sources(manifest: Manifest, cpu: Artifact, engines: Artifact) -> None:
    sizes = dataclasses.replace(manifest.sizes, source_vocab_size=0, max_source_positions=0)
    model = dataclasses.replace(manifest, kind="decoder", sizes=sizes)
    step = {"batch": (1, 4, 16), "q_len": (1, 8, 32), "n": (1, 1, 32)}
    engine = dataclasses.replace(ENGINE, profiles={"decoder": (step, step)})
    for artifact, tokens in ((cpu, 32), (dataclasses.replace(engines, engine=engine), 128)):
        plan = plan_memory(model, artifact, batch=3, free=PLENTY)
        assert plan.load == memory_needs.Load(3, tokens, 0)
        assert (plan.needs.sources, plan.largest_capacity) == (0, tokens)
        with pytest.raises(OptionError, match="source_len is 5, .* reads no source: its prompts count as capacity"):
            plan_memory(model, artifact, source_len=5, free=PLENTY)


def test_caches_of_16_bits_take_half_in_onnx_runtime_as_well(manifest: Manifest, cpu: Artifact) -> None:
    half = dataclasses.replace(cpu, name="ort-cuda-fp16", target="ort-cuda", backend="ort-cuda", precision="fp16")
    wide, narrow = (plan_memory(manifest, artifact, free=PLENTY).needs for artifact in (cpu, half))
    assert (narrow.caches, narrow.sources) == (wide.caches // 2, wide.sources // 2)


def test_an_encoder_has_outputs_and_no_caches(manifest: Manifest, cpu: Artifact, engines: Artifact) -> None:
    sizes = dataclasses.replace(manifest.sizes, source_vocab_size=0, max_source_positions=0, max_positions=600)
    record = EncoderRecord("embedding", d_model=32, width=48, has_token_types=True, labels=(), scoring="none")
    model = dataclasses.replace(manifest, kind="encoder", sizes=sizes, encoder=record)
    engine = dataclasses.replace(ENGINE, capacity=0, profiles={"encoder": ({**BOTH, "n": (1, 1, 1)},)})
    for artifact, longest in ((cpu, 600), (dataclasses.replace(engines, engine=engine), 256)):
        plan = plan_memory(model, artifact, batch=3, source_len=100, free=PLENTY)
        assert plan.load == memory_needs.Load(3, 0, 100)
        assert (plan.needs.caches, plan.needs.sources, plan.largest_capacity) == (0, 0, longest)
        assert plan.needs.io == 8 * (2 * 3 * 100 + 3) + 4 * (3 * 100 * 32 + 3 * 48)
        assert plan_memory(model, artifact, free=PLENTY).load.source_len == min(longest, 512)
        with pytest.raises(OptionError, match="capacity is 5, .* keeps no cache: source_len is what it reads"):
            plan_memory(model, artifact, capacity=5, free=PLENTY)
        needs = plan_memory(model, artifact, source_len=100, free=PLENTY).needs
        with pytest.raises(NotEnoughMemoryError, match=r"for 2 rows of 100 tokens .*: 1 rows would fit"):
            require(plan_memory(model, artifact, batch=2, source_len=100, free=Free(needs.total, "memory")))
