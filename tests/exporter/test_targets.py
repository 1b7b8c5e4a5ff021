"""What a target cannot do is refused with the reason and with what is nearest; features are looked up by version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeformer.exporter.targets import (
    FEATURES,
    HEAD_SIZES,
    TARGETS,
    capabilities,
    check_model,
    check_version,
    choose_target,
    find_target,
    with_precision,
)
from edgeformer.exporter.targets.__main__ import main as write_table
from edgeformer.exporter.targets.limits import in_range
from edgeformer.runtime.backends import backends, older
from edgeformer.runtime.errors import TargetError
from edgeformer.runtime.names import Sizes

DOC = Path(__file__).parents[2] / "docs" / "targets.md"
ENGINES = [target for target in TARGETS.values() if target.module]


def heads(width: int) -> Sizes:
    return Sizes(vocab_size=10, num_layers=1, num_heads=2, num_kv_heads=2, head_dim=width, max_positions=8)


def refused(*arguments: Any, by: Any = choose_target, **options: Any) -> str:
    with pytest.raises(TargetError) as caught:
        by(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# A name and a precision


def test_a_target_comes_with_its_first_precision_unless_another_is_asked_for() -> None:
    target, precision = find_target("ort-cpu")
    assert (target.name, target.backend, precision) == ("ort-cpu", "ort-cpu", "fp32")
    assert find_target("ort-cpu", "int8") == (target, "int8")


def test_a_target_that_does_not_exist_is_refused_with_the_nearest() -> None:
    with pytest.raises(TargetError, match="there is no target 'ort_cpu'; known: .*ort-cpu.*; did you mean ort-cpu?"):
        find_target("ort_cpu")
    with pytest.raises(TargetError) as caught:
        find_target("zzz")
    assert "did you mean" not in str(caught.value)


def test_a_precision_that_it_does_not_have_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(TargetError, match="target ort-cpu has no precision 'int3'; it has: fp32, fp16, bf16, int8"):
        find_target("ort-cpu", "int3")


# The table


def test_every_target_says_what_it_is_and_where_it_has_run() -> None:
    for name, target in TARGETS.items():
        assert target.name == name
        assert target.backend in backends()
        assert target.precisions
        assert set(target.attention) <= set(HEAD_SIZES)
        assert target.attention
        assert target.has_run


def test_only_what_tests_run_is_said_to_have_run() -> None:
    assert [name for name, target in TARGETS.items() if target.has_run == "ran in CI"] == ["ort-cpu"]
    assert [name for name, target in TARGETS.items() if target.has_run.startswith("engines built")] == ["tensorrt-rtx"]


def test_rows_of_engines_name_their_versions_and_gpus() -> None:
    for target in ENGINES:
        assert target.versions is not None
        assert target.compute_capabilities
        assert set(target.portable) <= set(target.compute_capabilities)
        assert all(with_precision(target, precision) for precision in target.precisions)


def test_a_row_offers_only_forms_of_attention_that_its_oldest_version_has() -> None:
    for target in ENGINES:
        native = {"attention_layer", "kv_cache_update"} <= target.features
        assert ("native" in target.attention) is native
        assert ("plugin" in target.attention) is ("plugins" in target.features)


def test_a_row_offers_kernels_in_the_engine_where_a_version_of_its_range_has_them() -> None:
    """The installed one is asked before a build."""
    since = FEATURES["aot_plugins"]
    for target in ENGINES:
        first = since.since(str(target.module), jetson=target.jetson)
        assert target.versions is not None
        assert ("plugin-aot" in target.attention) is (first is not None and older(first, target.versions[1]))


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("10.3.0.26", ["tensorrt-10.3", "jetson-orin-jp6"]),
        ("10.9", ["tensorrt-10.3"]),
        ("10.13.3.9", ["tensorrt-10.13", "jetson-thor-jp7.1"]),
        ("10.15.1", ["tensorrt-10.13"]),
        ("10.16.1.11", ["tensorrt-10.16", "jetson-orin-jp7.2", "jetson-thor-jp7.2"]),
        ("11.0.0", ["tensorrt-11"]),
        ("11.4.0.106", ["tensorrt-11"]),
        ("11.4.1", ["tensorrt-11", "jetson-orin-jp7.2", "jetson-thor-jp7.2"]),
        ("9.3", []),
    ],
)
def test_every_version_has_its_rows(version: str, names: list[str]) -> None:
    assert [row.name for row in ENGINES if row.module == "tensorrt" and in_range(row, version)] == names


def test_the_documentation_has_the_table_that_the_data_gives(tmp_path: Path) -> None:
    copy = tmp_path / "targets.md"
    text = DOC.read_text(encoding="utf-8")
    copy.write_text(text.replace("`tensorrt-rtx`", "`something else`"), encoding="utf-8")
    write_table(copy)
    assert copy.read_text(encoding="utf-8") == text
    for name in (*TARGETS, *FEATURES):
        assert f"| `{name}` |" in text


# Features by version


@pytest.mark.parametrize(
    ("feature", "before", "since"),
    [
        ("aliased_plugin_io", "10.2.9", "10.3.0.26"),
        ("aot_plugins", "10.8.0.43", "10.9.0.34"),
        ("attention_layer", "10.13.3.9", "10.14.1.48"),
        ("kv_cache_update", "10.14.1.48", "10.15.1.29"),
        ("rotary_layer", "10.14.1.48", "10.15"),
        ("lower_right_causal", "10.16.1", "11.0.0"),
        ("strongly_typed_only", "10.16.1", "11.0.0"),
        ("fp32_accumulation", "11.2.9", "11.3"),
    ],
)
def test_a_feature_is_there_from_its_version_on(feature: str, before: str, since: str) -> None:
    assert feature not in capabilities("tensorrt", before)
    assert feature in capabilities("tensorrt", since)
    assert feature in capabilities("tensorrt", "11.4.1")


def test_what_came_with_11_is_on_a_jetson_from_11_4_1_on() -> None:
    for feature in ("lower_right_causal", "key_value_lengths", "fp32_accumulation"):
        assert feature in capabilities("tensorrt", "11.4.0")
        assert feature not in capabilities("tensorrt", "11.4.0", jetson=True)
        assert feature in capabilities("tensorrt", "11.4.1", jetson=True)
    assert "attention_layer" in capabilities("tensorrt", "10.16", jetson=True)


def test_rtx_has_no_plugins_and_builds_without_a_gpu() -> None:
    found = capabilities("tensorrt_rtx", "1.7.1.116")
    assert {"attention_layer", "kv_cache_update", "builds_without_gpu", "strongly_typed_only"} <= found
    assert not found & {"plugins", "aot_plugins", "timing_cache", "stripping", "version_compatible"}
    assert capabilities("tensorrt_rtx", "1.6") == frozenset()


def test_rtx_as_it_is_installed_has_the_calls_that_its_features_stand_for() -> None:
    trt = pytest.importorskip("tensorrt_rtx")
    assert "attention_layer" in capabilities("tensorrt_rtx", trt.__version__)
    calls = {
        "attention_layer": "add_attention",
        "kv_cache_update": "add_kv_cache_update",
        "rotary_layer": "add_rotary_embedding",
        "plugins": "add_plugin_v3",
    }
    for feature, call in calls.items():
        there = feature in capabilities("tensorrt_rtx", trt.__version__)
        assert hasattr(trt.INetworkDefinition, call) is there
    row = TARGETS["tensorrt-rtx"]
    named = {f"SM{gpu.replace('.', '')}" for gpu in row.compute_capabilities}
    assert named | {"NONE", "CURRENT"} == {name for name in dir(trt.ComputeCapability) if name.isupper()}
    assert in_range(row, trt.__version__)


# GPUs


def test_rtx_builds_the_portable_set_unless_gpus_are_named() -> None:
    row = TARGETS["tensorrt-rtx"]
    for precision in ("fp16", "bf16", "int8", "int4"):
        assert choose_target("tensorrt-rtx", precision).compute_capabilities == row.portable
        named = choose_target("tensorrt-rtx", precision, compute_capabilities=["portable"])
        assert named.compute_capabilities == row.portable
    assert choose_target("tensorrt-rtx", compute_capabilities=["8.9"]).compute_capabilities == ("8.9",)
    assert choose_target("tensorrt-rtx", compute_capabilities=["7.5"]).compute_capabilities == ("7.5",)


def test_tensorrt_builds_for_the_gpu_that_it_finds_unless_one_is_named() -> None:
    assert choose_target("jetson-orin-jp6").compute_capabilities == ()
    assert choose_target("tensorrt-11", compute_capabilities=["9.0"]).compute_capabilities == ("9.0",)


@pytest.mark.parametrize("precision", ["bf16", "int8", "int4"])
def test_turing_is_refused_what_it_lacks_with_what_it_has(precision: str) -> None:
    message = refused("tensorrt-rtx", precision, compute_capabilities=["7.5"])
    assert f"compute capability 7.5 has no {precision} on target tensorrt-rtx" in message
    assert "take fp16 there, or one of 8.0, 8.6, 8.9, 12.0, 12.1" in message
    with pytest.raises(TargetError, match="compute capability 7.5 has no fp32"):
        choose_target("tensorrt-rtx", "fp32", compute_capabilities=["7.5"], allow_unfused=True)


def test_a_gpu_that_a_row_does_not_have_is_refused_with_the_rows_that_have_it() -> None:
    message = refused("tensorrt-rtx", compute_capabilities=["8.9", "8.7"])
    assert "target tensorrt-rtx has no compute capability 8.7; it has: 7.5, 8.0, " in message
    assert "targets that have 8.7: jetson-orin-jp6, jetson-orin-jp7.2" in message
    assert "targets that have" not in refused("tensorrt-rtx", compute_capabilities=["6.1"])


def test_turing_is_built_where_it_is_named_and_is_not_in_the_portable_set() -> None:
    both = choose_target("tensorrt-rtx", compute_capabilities=["7.5", "8.9"])
    assert both.compute_capabilities == ("7.5", "8.9")
    assert "7.5" not in TARGETS["tensorrt-rtx"].portable


def test_no_gpu_is_named_where_no_engine_is_built_and_no_set_where_there_is_none() -> None:
    assert "builds no engines" in refused("ort-cpu", compute_capabilities=["8.9"])
    assert "has no portable engines: name one" in refused("tensorrt-11", compute_capabilities=["portable"])


# Attention


def test_attention_is_of_the_preferred_form_unless_another_is_asked_for() -> None:
    assert choose_target("tensorrt-11").attention == "native"
    assert choose_target("jetson-orin-jp6").attention == "plugin"
    assert choose_target("jetson-orin-jp6", attention="primitive").attention == "primitive"


def test_a_form_that_a_row_does_not_have_is_refused_with_the_rows_that_have_it() -> None:
    message = refused("jetson-orin-jp6", attention="native")
    assert "it has plugin, primitive; targets that have it: tensorrt-10.16, " in message
    assert "target tensorrt-rtx has no attention of the form 'plugin'" in refused("tensorrt-rtx", attention="plugin")
    for target, has in (("tensorrt-rtx", "native"), ("jetson-orin-jp6", "plugin, primitive")):
        message = refused(target, attention="plugin-aot")
        assert f"no attention of the form 'plugin-aot': it has {has}; targets that have it: tensorrt-10.3, " in message


@pytest.mark.parametrize("target", ["tensorrt-rtx", "tensorrt-11", "jetson-orin-jp6"])
def test_fp32_is_not_fused_and_is_refused_unless_that_is_allowed(target: str) -> None:
    message = refused(target, "fp32")
    assert f"target {target} fuses no attention in fp32: take fp16 or bf16, or allow" in message
    assert choose_target(target, "fp32", allow_unfused=True).precision == "fp32"


@pytest.mark.parametrize("width", [8, 12, 20, 264, 512])
def test_widths_that_no_kernel_has_are_refused_with_those_that_it_has(width: int) -> None:
    message = refused(choose_target("tensorrt-rtx"), heads(width), by=check_model)
    assert f"cannot take heads that are {width} wide: native attention takes 16 to 256, multiples of 8" in message
    assert "--allow-unfused" in message
    check_model(choose_target("tensorrt-rtx", allow_unfused=True), heads(width))


def test_a_form_that_takes_the_width_is_named_where_there_is_one() -> None:
    message = refused(choose_target("jetson-orin-jp6"), heads(256), by=check_model)
    assert message.endswith("take --attention primitive")
    check_model(choose_target("jetson-orin-jp6", attention="primitive"), heads(256))


@pytest.mark.parametrize("width", [16, 64, 72, 128, 256])
def test_usual_widths_are_taken(width: int) -> None:
    check_model(choose_target("tensorrt-rtx"), heads(width))
    check_model(choose_target("ort-cuda"), heads(width))


# Versions


def test_another_version_is_refused_with_the_row_that_it_is_of() -> None:
    message = refused(TARGETS["tensorrt-10.3"], "11.2.0", by=check_version)
    assert "is of tensorrt 10.3 to below 10.13; 11.2.0 is installed here: take the target tensorrt-11" in message
    check_version(TARGETS["tensorrt-11"], "11.2.0")
    check_version(TARGETS["ort-cpu"], "1.0")


def test_versions_that_a_jetson_never_had_are_refused() -> None:
    message = refused(TARGETS["jetson-orin-jp7.2"], "11.2.0", by=check_version)
    assert "without 11.0 to below 11.4.1; 11.2.0 is installed here: install a version of the range" in message
    check_version(TARGETS["jetson-orin-jp7.2"], "11.4.1.2")
