"""Plans by hand: caches, windows, bounds of speed, what fits, and what is recommended."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from edgeformer.cli.sizing.activations import activation_bytes
from edgeformer.cli.sizing.advice import EXPORT_BYTES, advise
from edgeformer.cli.sizing.asking import target_of
from edgeformer.cli.sizing.device_rows import DEVICES
from edgeformer.cli.sizing.devices import Device, find_device
from edgeformer.cli.sizing.planning import Question, load_of, sized
from edgeformer.cli.sizing.roofline import Bound, Work, bound, prompt_work, seen_together, source_work, step_work
from edgeformer.cli.sizing.shapes import Role, Shape, Weight
from edgeformer.cli.sizing.stored import PLAN
from edgeformer.exporter import checkpoint_memory
from edgeformer.exporter.targets import TARGETS
from edgeformer.runtime.encoder_records import EncoderRecord
from edgeformer.runtime.errors import OptionError, TargetError
from edgeformer.runtime.machine_memory import Free
from edgeformer.runtime.memory_needs import Load
from edgeformer.runtime.names import Sizes

# Two layers, two of four heads keep keys and values; a body of 1,024 x 2,000 numbers, a vocabulary of 5,000.
SIZES = Sizes(vocab_size=5000, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=250, max_positions=4096)
BODY, HEAD = Weight(0, 1024, 2000, True, False), Weight(1, 1024, 5000, True, True)
DECODER = Role((BODY, HEAD), 100, 2)
MODEL = Shape("llama", "decoder", SIZES, None, {"decoder": DECODER}, (None, None), 7_168_100)
TOKEN = 2 * 2 * 2 * 250  # numbers of a token in the caches: keys and values of two layers
DEVICE = Device("device", "a device", ("tensorrt-11", "ort-cpu"), 10**9, 0, 1e9, {"fp16": 1e12, "fp32": 1e11}, "a page",
                "8.9")  # fmt: skip


def question(shape: Shape = MODEL, target: str = "ort-cpu", **changes: Any) -> Question:
    load = changes.pop("load", Load(1, 512, 0))
    return Question(shape, DEVICE, TARGETS[target], load, Free(changes.pop("free", 10**9), "memory"), **changes)


def of(plans: list[Any], precision: str) -> Any:
    return next(plan for plan in plans if plan.precision == precision)


def test_caches_are_of_the_heads_that_keep_keys_and_values() -> None:
    plan = of(sized(question(load=Load(3, 512, 0))), "fp32")
    assert plan.cache_per_token == 4 * TOKEN
    assert plan.needs.caches == 3 * 512 * 4 * TOKEN
    half = of(sized(question(target="tensorrt-11")), "fp16")
    assert half.cache_per_token == 2 * TOKEN
    assert half.needs.caches >= 512 * 2 * TOKEN


def test_a_sliding_window_bounds_what_is_read_and_not_what_is_kept() -> None:
    windowed = dataclasses.replace(MODEL, windows=(None, 64))
    assert of(sized(question(windowed)), "fp32").needs.caches == of(sized(question()), "fp32").needs.caches
    all_, less = (step_work(shape, "ort-cpu", "fp32", 1, 256, 0).bytes for shape in (MODEL, windowed))
    assert all_ - less == (256 - 64) * 4 * TOKEN // 2
    assert seen_together(5, None) == 15
    assert seen_together(5, 2) == 1 + 2 * 4
    assert seen_together(5, 9) == 15


def test_a_step_reads_weights_once_and_the_caches_of_every_row() -> None:
    work = step_work(MODEL, "ort-cpu", "fp32", 3, 256, 0)
    assert work.bytes == 4 * 7_168_100 + 3 * 256 * 4 * TOKEN
    assert work.flops == 3 * (2 * 7_168_000 + 4 * 4 * 250 * 2 * 256)


def test_a_prompt_computes_the_vocabulary_of_its_last_token_alone() -> None:
    work = prompt_work(MODEL, "ort-cpu", "fp32", 2, 100)
    attention = 4 * 2 * 4 * 250 * 2 * (100 * 101 // 2)
    assert work == Work(4 * 7_168_100, 2 * 2 * (2_048_000 * 100 + 5_120_000) + attention)


def test_a_bound_is_the_longer_of_reading_and_computing() -> None:
    both = bound(Work(bytes=2_000, flops=6_000), bandwidth=1_000, arithmetic=1_000)
    assert (both.reading, both.computing, both.seconds, both.one_after_the_other, both.by) == (2, 6, 6, 8, "arithmetic")
    assert bound(Work(2_000, 1), 1_000, None) == Bound(2, None)
    assert bound(Work(2_000, 1), 1_000, None).by == "bandwidth"
    codes = bound(Work(2_000, 6_000), 1_000, 1_000, exceeded=True)  # float32's arithmetic is no bound of theirs
    assert (codes.seconds, codes.one_after_the_other, codes.by) == (2, 8, "bandwidth")
    nothing = bound(Work(1, 1), None, None)
    assert (nothing.seconds, nothing.one_after_the_other, nothing.by) == (None, None, "unknown")


def test_tokens_a_second_follow_from_the_devices_bandwidth() -> None:
    plan = of(sized(question()), "fp32")
    seconds = (4 * 7_168_100 + 256 * 4 * TOKEN) / 1e9
    low, high, most = plan.speed.tokens_per_second(1)
    assert most == pytest.approx(1 / seconds)
    usual = 1 / (seconds + (2 * 7_168_000 + 4 * 4 * 250 * 2 * 256) / 1e11)
    assert (low, high) == (pytest.approx(0.62 * usual), pytest.approx(0.81 * usual))
    assert most > high > low


def test_what_is_measured_of_small_arrays_counts_for_small_weights() -> None:
    cached = dataclasses.replace(DEVICE, rates={10_000_000: 5e10, 500_000_000: 1e10})
    assert (cached.bandwidth_for(1), cached.bandwidth_for(400_000_000)) == (5e10, 1e10)
    assert DEVICE.bandwidth_for(1) == 1e9


def test_the_largest_loads_are_exact() -> None:
    free = 4 * 7_168_100 + 3_000 * 4 * TOKEN + 4 * 5000
    plan = of(sized(question(free=free)), "fp32")
    assert plan.fits
    assert plan.largest_capacity == {1: 3_000, 8: (3_000 * 4 * TOKEN - 7 * 4 * 5000) // (8 * 4 * TOKEN)}
    assert plan.largest_batch == (free - 4 * 7_168_100) // (512 * 4 * TOKEN + 4 * 5000)


def test_an_encoder_decoder_has_sources_and_reads_them_once() -> None:
    sizes = dataclasses.replace(SIZES, source_vocab_size=5000, max_source_positions=600)
    encoder = Role((Weight(2, 1000, 3000, True, False),), 0, 6)
    shape = dataclasses.replace(
        MODEL, kind="encoder-decoder", sizes=sizes, roles={"encoder": encoder, "decoder": DECODER}
    )
    load = load_of(shape, 2, 100, None)
    assert load == Load(2, 100, 512)
    plan = of(sized(question(shape, load=load)), "fp32")
    assert plan.needs.sources == 2 * 512 * 4 * 2 * 2 * 4 * 250
    assert source_work(shape, "ort-cpu", "fp32", 2, 10).flops == 2 * 20 * 3_000_000 + 4 * 2 * 1000 * 100 * 6
    step = step_work(shape, "ort-cpu", "fp32", 1, 50, 512)
    assert step.bytes == 4 * 7_168_100 + 50 * 4 * TOKEN + 512 * 4 * 2 * 2 * 1000
    engine = of(sized(question(shape, "tensorrt-11", load=load)), "fp16")
    assert engine.needs.weights == 2 * (7_168_000 + 3_000_000) + 4 * 100 + sum(PLAN.values())
    assert engine.needs.activations == max(activation_bytes(shape, role, load) for role in shape.roles)


def test_an_encoder_has_calls_and_no_steps() -> None:
    record = EncoderRecord("hidden-states", 1000, 1000, False, (), "none")
    shape = dataclasses.replace(MODEL, kind="encoder", encoder=record, roles={"encoder": DECODER})
    load = load_of(shape, 4, None, 128)
    assert load == Load(4, 0, 128)
    plan = of(sized(question(shape, load=load)), "fp32")
    assert (plan.cache_per_token, plan.needs.caches, plan.speed.step) == (0, 0, None)
    assert plan.speed.tokens_per_second(4) == (None, None, None)
    assert plan.speed.first.by == "arithmetic"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((0, None, None), "--batch is 0, expected 1 to"),
        ((1, 5000, None), "--capacity is 5000, expected 1 to 4096"),
        ((1, None, 8), "--source-len is 8: a language model reads no source"),
    ],
)
def test_loads_that_make_no_sense_are_refused(asked: tuple[Any, ...], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        load_of(MODEL, *asked)


def test_precisions_are_those_that_the_target_has_on_the_gpu_and_fuses() -> None:
    assert [plan.precision for plan in sized(question())] == ["fp32", "int8", "int8-rows", "int4"]
    assert [plan.precision for plan in sized(question(target="tensorrt-11"))] == ["fp16", "bf16", "int8", "int4"]
    turing = dataclasses.replace(question(target="tensorrt-11"), device=DEVICES["t4"])
    assert "bf16" not in [plan.precision for plan in sized(turing)]


# What is recommended


def advice(asked: Question, is_bundle: bool = False) -> Any:
    return advise(asked, sized(asked), Path("a folder"), is_bundle)


def test_what_rounds_least_is_recommended_with_the_commands_that_make_it() -> None:
    found = advice(question())
    assert found.precision == "fp32"
    assert found.reason.startswith("fp32: of what fits it rounds least; int4 could be up to ")
    assert found.commands[0].startswith("edgeformer export 'a folder' -o BUNDLE")
    assert "57.3 MB" in found.commands[0]
    assert found.commands[1] == "edgeformer optimize BUNDLE --target ort-cpu --precision fp32"
    assert found.commands[2].startswith("edgeformer bench BUNDLE --artifact ort-cpu-fp32 --batch 1")


def test_what_does_not_fit_is_not() -> None:
    found = advice(question(free=4 * 7_168_000))
    assert found.precision == "int8"
    nothing = advice(question(free=10_000_000))
    assert (nothing.precision, nothing.commands) == (None, ())
    assert nothing.reason.startswith("nothing fits; in int8 one row of ")
    assert advice(question(free=1000)).reason.startswith("nothing fits: int8 needs ")


def test_engines_are_built_for_the_load_that_was_planned() -> None:
    found = advice(question(target="tensorrt-11", load=Load(4, 256, 0)), is_bundle=True)
    assert found.commands[0] == (
        "edgeformer optimize 'a folder' --target tensorrt-11 --precision fp16 --batch 4 --capacity 256  "
        "# on the device: TensorRT builds for the GPU that it finds"
    )
    rtx = advice(question(target="tensorrt-rtx"), is_bundle=True)
    assert " --compute-capability 8.9 " in rtx.commands[0]
    assert "on the device" not in rtx.commands[0]


def test_what_cannot_be_built_on_the_device_is_said() -> None:
    asked = question(target="tensorrt-11", free=100_000_000)
    assert advice(asked).precision is None
    assert "int4 fits, but a build on the device needs about " in advice(asked).reason


def test_what_is_built_is_taken_as_it_is() -> None:
    asked = question(built={"fp32": ("ort-cpu-fp32", 12_345)})
    plan = of(sized(asked), "fp32")
    assert (plan.built, plan.needs.weights) == ("ort-cpu-fp32", 12_345)
    assert [command.split()[1] for command in advice(asked, is_bundle=True).commands] == ["bench"]


def test_without_a_memory_nothing_is_known_to_fit() -> None:
    asked = dataclasses.replace(question(), free=None)
    assert [(plan.fits, plan.largest_batch) for plan in sized(asked)] == [(None, None)] * 4
    assert "say --free-memory" in advice(asked).reason


def test_an_export_takes_what_it_asks_for() -> None:
    assert EXPORT_BYTES == checkpoint_memory.BYTES_EACH


# The table of devices


@pytest.mark.parametrize("name", DEVICES)
def test_every_device_has_a_source_and_targets_that_exist(name: str) -> None:
    device = DEVICES[name]
    assert len(device.source) > 20
    assert device.bandwidth is not None
    assert device.bandwidth > 1e9
    assert set(device.arithmetic) <= {"fp32", "fp16", "int8"}
    for target in device.targets:
        row = TARGETS[target]
        if row.compute_capabilities:
            assert device.compute_capability in row.compute_capabilities, target
            assert row.jetson is name.startswith("jetson")
    if device.memory is not None:
        assert device.usable == device.memory - device.reserve > 10**9
    if {"fp16", "int8"} <= set(device.arithmetic):  # dense, both: 8 bits are twice as fast
        assert device.arithmetic["int8"] == pytest.approx(2 * device.arithmetic["fp16"], rel=0.1)


def test_a_device_that_is_not_there_is_refused_with_the_nearest_and_all() -> None:
    with pytest.raises(OptionError, match=r"'jetson-orin-nano-8gb', which is not in the table; did you mean "
                                          r"jetson-orin-nano-8g\? Known: jetson-orin-nano-4g, .*, this"):  # fmt: skip
        find_device("jetson-orin-nano-8gb", DEVICES)
    with pytest.raises(TargetError, match="--target is tensorrt-11, jetson-t5000 has: jetson-thor-jp7.2"):
        target_of(DEVICES["jetson-t5000"], "tensorrt-11")
