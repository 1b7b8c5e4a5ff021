"""Plans are read with care: damaged ones, ones of other graphs, and ones that do not fit."""

from __future__ import annotations

import dataclasses
import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.runtime import GenerationConfig, Model, machine_memory
from edgeformer.runtime.backends.tensorrt import executor as executors
from edgeformer.runtime.backends.tensorrt.executor import TensorRTExecutor
from edgeformer.runtime.bundle import record_file
from edgeformer.runtime.errors import BackendUnavailableError, BundleError, NotEnoughMemoryError

from .conftest import Machine, MakeBundle, profiles

GREEDY = GenerationConfig(max_new_tokens=4)
RTX: dict[str, Any] = {"module": "tensorrt_rtx", "version": "1.7.1.116"}


def edit(bundle: Path, change: Callable[[dict[str, Any]], None]) -> None:
    values = json.loads((bundle / "bundle.json").read_text())
    change(values["artifacts"][-1])
    (bundle / "bundle.json").write_text(json.dumps(values))


def refused(machine: Machine, bundle: Path, kind: type[Exception] = BundleError) -> str:
    with pytest.raises(kind) as caught:
        machine.load(bundle)
    return str(caught.value)


@pytest.mark.parametrize("role", ["encoder", "decoder"])
@pytest.mark.parametrize("kept", [0, 10, 200])
def test_a_truncated_plan_is_one_line(machine: Machine, make_bundle: MakeBundle, role: str, kept: int) -> None:
    """Though its hash is right, as where it was truncated before it was recorded."""
    bundle = make_bundle()
    plan = bundle / "engines" / f"{role}.plan"
    plan.write_bytes(plan.read_bytes()[:kept])

    def record(artifact: dict[str, Any]) -> None:
        artifact["files"][f"engines/{role}.plan"] = dataclasses.asdict(record_file(plan))

    edit(bundle, record)
    message = refused(machine, bundle)
    for part in (f"engines/{role}.plan is no plan that tensorrt 11.4.0.1 can read", "magic tag does not match"):
        assert part in message
    assert "no news" not in message
    assert "optimize the bundle anew" in message


def test_a_plan_whose_hash_is_wrong_is_not_read(machine: Machine, make_bundle: MakeBundle) -> None:
    bundle = make_bundle()
    with (bundle / "engines" / "decoder.plan").open("ab") as plan:
        plan.write(b" ")
    assert "engines/decoder.plan has" in refused(machine, bundle)
    assert machine.modules == {}


def test_a_plan_of_other_graphs_is_refused_with_both(machine: Machine, make_bundle: MakeBundle) -> None:
    bundle = make_bundle(graphs={"encoder": "0" * 64, "decoder": "f" * 64})
    message = refused(machine, bundle)
    assert "the encoder's plan was built from graph 000000000000, the bundle's is " in message
    assert "the decoder's plan was built from graph ffffffffffff, the bundle's is " in message


def test_an_engine_without_the_contracts_tensors_is_refused_with_all_of_them(
    machine: Machine, make_bundle: MakeBundle, tiny_bundle: Path
) -> None:
    """The portable graph chooses no tokens."""
    message = refused(machine, make_bundle(plan={"graph": str(tiny_bundle / "onnx" / "decoder.onnx")}))
    assert "engines/decoder.plan lacks next_ids, next_log_probs" in message
    message = refused(machine, make_bundle(plan={"graph": str(tiny_bundle / "onnx" / "encoder.onnx")}))
    assert "lacks cache_lengths, logits, logits_at, " in message


def test_caches_that_are_not_as_recorded_are_refused_with_both(machine: Machine, make_bundle: MakeBundle) -> None:
    """Memory is taken by the record: what is larger would be written past it."""

    def smaller(artifact: dict[str, Any]) -> None:
        artifact["engine"] |= {"capacity": 16, "dtype": "float16"}

    bundle = make_bundle()
    edit(bundle, smaller)
    message = refused(machine, bundle)
    assert "has past_key_values.1.value as DataType.FLOAT (2, 32, 16) a row, the record says DataType.HALF" in message
    assert "DataType.HALF (2, 16, 16)" in message


def test_caches_that_are_mixed_up_are_refused(machine: Machine, make_bundle: MakeBundle) -> None:
    aliases = {f"present.{i}.{part}": f"past_key_values.{1 - i}.{part}" for i in (0, 1) for part in ("key", "value")}
    message = refused(machine, make_bundle(plan={"aliases": aliases}))
    assert "mixes up its caches: present.0.key writes into past_key_values.1.key" in message


def test_profiles_that_cannot_decode_are_refused_with_every_problem(machine: Machine, make_bundle: MakeBundle) -> None:
    several = {**profiles(), "encoder": ({"batch": (2, 4, 8), "source_len": (1, 8, 32)},)}
    assert "profile 0 of the encoder takes batch from 2, expected from 1" in refused(
        machine, make_bundle(profiles=several)
    )
    one = {**profiles(), "decoder": profiles()["decoder"][:1]}
    assert "expected two profiles of the decoder" in refused(machine, make_bundle(profiles=one))


def test_plugins_are_registered_before_an_engine_is_read(
    machine: Machine, make_bundle: MakeBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[tuple[str, Path, int]] = []

    def register(module: Any, folder: Path) -> None:
        registered.append((module.__name__, folder, len(module.engines)))

    monkeypatch.setattr("edgeformer.runtime.plugins.register", register)
    bundle = make_bundle(plan={"aliases": {}}, caches_in_place=True, extra_files=("engines/kernels/kernels.json",))
    model = machine.load(bundle)
    assert registered == [("tensorrt", bundle / "engines" / "kernels", 0)]
    assert model.generate("word", GREEDY)[0].token_ids  # and caches are taken as written in place


@pytest.mark.parametrize("aliases", [None, {}], ids=["cannot be asked", "does not tell"])
def test_an_engine_that_carries_its_kernels_needs_no_plugins_and_writes_caches_in_place(
    machine: Machine, make_bundle: MakeBundle, on_cpu: Model, monkeypatch: pytest.MonkeyPatch, aliases: Any
) -> None:
    """The stand-in refuses a cache's output that is not bound where its input is."""
    monkeypatch.setattr("edgeformer.runtime.plugins.register", lambda module, folder: pytest.fail("registered"))
    model = machine.load(make_bundle(plan={"aliases": aliases}, caches_in_place=True))
    found, wanted = (each.generate(["word", "a"], GREEDY) for each in (model, on_cpu))
    assert [one.token_ids for one in found] == [one.token_ids for one in wanted]


def test_weights_are_put_back_into_stripped_plans(machine: Machine, make_bundle: MakeBundle) -> None:
    files = tuple(f"engines/graphs/{role}.onnx" for role in ("encoder", "decoder"))
    machine.load(make_bundle(stripped=True, extra_files=files))
    assert [engine.refitted for engine in machine.modules["tensorrt"].engines] == [True, True]
    message = refused(machine, make_bundle(stripped=True))
    assert "encoder.onnx do not fit engines/encoder.plan: Failed to open the model" in message
    machine.installed = {"tensorrt_lean": "11.4.0.1"}
    bundle = make_bundle(stripped=True, version_compatible=True, extra_files=files)
    assert "which tensorrt_lean cannot put back" in refused(machine, bundle, BackendUnavailableError)


# Memory


def test_a_load_that_cannot_fit_is_refused_with_the_numbers(machine: Machine, engine_bundle: Path) -> None:
    machine.cuda.memory = 10_000
    message = refused(machine, engine_bundle, NotEnoughMemoryError)
    assert "artifact engines needs " in message
    assert "0.0 MB of GPU memory of NVIDIA Pretence 4000 are free" in message
    assert machine.modules == {}


def test_rows_that_cannot_fit_are_refused_with_those_that_would(
    machine: Machine, engine_bundle: Path, words: list[str]
) -> None:
    model = machine.load(engine_bundle)
    machine.cuda.memory = machine.cuda.used + 300_000
    with pytest.raises(NotEnoughMemoryError, match=r"for 16 rows of 32 tokens .*: \d rows would fit"):
        model.session(words[:16])
    with model.session(words[:2]) as session:
        session.step([[1], [1]])


def test_memory_of_earlier_rows_makes_room_for_new_ones(machine: Machine, engine_bundle: Path) -> None:
    model = machine.load(engine_bundle)
    model.generate([[3] * 30] * 8, GREEDY)
    machine.cuda.memory = machine.cuda.used + 100_000
    assert model.generate([[3] * 5] * 8, GREEDY)


def test_memory_that_runs_out_all_the_same_is_one_line(
    machine: Machine, engine_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other programs take memory as well."""
    model = machine.load(engine_bundle)
    machine.cuda.memory = machine.cuda.used + 1000
    plenty = machine_memory.Free(1 << 40, "GPU memory")
    monkeypatch.setattr(machine_memory, "free_memory", lambda artifact: plenty)
    with pytest.raises(NotEnoughMemoryError, match="cuMemAlloc found no memory left on the GPU"):
        model.generate("word", GREEDY)


def test_weights_are_streamed_where_they_do_not_fit_beside_the_rest(machine: Machine, make_bundle: MakeBundle) -> None:
    machine.cuda.memory = 3_000_000
    machine.load(make_bundle(streamable=True, plan={"streamable": 5_000_000}))
    encoder, decoder = machine.modules["tensorrt"].engines
    assert 0 < decoder.weight_streaming_budget_v2 < 3_000_000
    assert encoder.weight_streaming_budget_v2 == 0 == encoder.streamable_weights_size
    machine.cuda.memory = 1 << 30
    machine.load(make_bundle(streamable=True, plan={"streamable": 5_000_000}))
    assert machine.modules["tensorrt"].engines[-1].weight_streaming_budget_v2 == 5_000_000


def test_who_forgets_a_model_has_its_memory_back(machine: Machine, engine_bundle: Path, words: list[str]) -> None:
    model: Model | None = machine.load(engine_bundle)
    assert model is not None
    model.generate(words[:9], GREEDY)
    rows = model.executor.start([[3, 2]], 4)
    assert machine.cuda.used > 0
    del rows, model
    machine.modules["tensorrt"].engines.clear()
    gc.collect()
    assert machine.cuda.used == 0
    assert machine.cuda.allocated == {}
    assert machine.cuda.captures > 0
    assert (machine.cuda.graphs, machine.cuda.executables) == (0, 0)


def test_memory_does_not_grow_with_every_shape(machine: Machine, engine_bundle: Path) -> None:
    model = machine.load(engine_bundle)
    for batch in range(1, 17):
        for length in (1, 9, 17, 32):
            model.generate([[3] * length] * batch, GenerationConfig(max_new_tokens=2))
    assert isinstance(model.executor, TensorRTExecutor)
    assert len(model.executor.spares) <= executors.MOST_SPARES
    assert machine.cuda.used < 8_000_000


# RTX's runtime cache


def rtx(machine: Machine, make_bundle: MakeBundle) -> Path:
    machine.installed = {"tensorrt_rtx": "1.7.1.116"}
    return make_bundle(**RTX)


def use_and_forget(machine: Machine, bundle: Path) -> list[bytes]:
    """What each engine's runtime cache held after loading."""
    model: Model | None = machine.load(bundle)
    assert model is not None
    engines = machine.modules["tensorrt_rtx"].engines
    held = [engine.contexts[0].config.cache.content for engine in engines]
    model.generate("word", GREEDY)
    del model
    engines.clear()
    gc.collect()
    return held


def test_kernels_that_rtx_compiled_are_kept_beside_the_plans(machine: Machine, make_bundle: MakeBundle) -> None:
    bundle = rtx(machine, make_bundle)
    assert use_and_forget(machine, bundle) == [b"", b""]
    assert (bundle / "engines" / "encoder.runtime.cache").read_bytes().startswith(b"kernels:")
    assert all(use_and_forget(machine, bundle))
    (bundle / "engines" / "encoder.runtime.cache").write_bytes(b"of another GPU")
    held = use_and_forget(machine, bundle)
    assert held[0] == b""
    assert held[1]


def test_where_the_bundle_cannot_be_written_they_are_kept_in_the_users_folder(
    machine: Machine, make_bundle: MakeBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = rtx(machine, make_bundle)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for role in ("encoder", "decoder"):  # a folder in its place, since root may write anywhere
        (bundle / "engines" / f"{role}.runtime.cache").mkdir()
    use_and_forget(machine, bundle)
    assert len(list((tmp_path / "edgeformer").glob("*.runtime.cache"))) == 2
    assert all(use_and_forget(machine, bundle))
    (tmp_path / "edgeformer").rename(tmp_path / "elsewhere")
    (tmp_path / "edgeformer").write_text("no folder")
    assert use_and_forget(machine, bundle) == [b"", b""]


def test_rtx_decodes_with_kernels_for_the_shape_at_hand(machine: Machine, make_bundle: MakeBundle) -> None:
    bundle = rtx(machine, make_bundle)
    model = machine.load(bundle)
    model.generate("word", GREEDY)
    contexts = machine.modules["tensorrt_rtx"].engines[1].contexts
    strategies = [context.config.dynamic_shapes_kernel_specialization_strategy.name for context in contexts]
    assert strategies == ["LAZY", "EAGER"]
