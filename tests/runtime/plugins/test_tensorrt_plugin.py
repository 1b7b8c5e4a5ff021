"""The plugins in TensorRT's own registry: the lean runtime's, which asks for no GPU."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgeformer.runtime.errors import BackendUnavailableError, BundleError
from edgeformer.runtime.plugins import allow_aliases, plugin_classes, register
from edgeformer.runtime.plugins.kernels import CACHED, SOURCE
from edgeformer.runtime.plugins.launching import Launcher
from edgeformer.runtime.plugins.tensorrt_plugin import Attributes

from .drivers import RecordingDriver

trt = pytest.importorskip("tensorrt_lean")

MakeFolder = Callable[..., Path]


class TensorFormat(enum.Enum):
    """The lean runtime has none; the builder's has more."""

    LINEAR = 0
    CHW2 = 1


@pytest.fixture
def module() -> ModuleType:
    """The lean runtime with the one type of a builder that the classes look at."""
    made = ModuleType("tensorrt")
    made.__dict__.update({**vars(trt), "__name__": "tensorrt", "TensorFormat": TensorFormat})
    return made


def fields(**values: float) -> Any:
    return trt.PluginFieldCollection([
        trt.PluginField("scale", np.array([value], np.float32), trt.PluginFieldType.FLOAT32) if name == "scale"
        else trt.PluginField(name, np.array([value], np.int32), trt.PluginFieldType.INT32)
        for name, value in values.items()
    ])  # fmt: skip


CACHED_FIELDS = {"scale": 0.25, "num_heads": 6, "num_kv_heads": 2, "window": 9}
SOURCE_FIELDS = {"scale": 0.125, "num_heads": 4, "num_kv_heads": 4}


def described(shape: tuple[int, ...], dtype: Any, layout: TensorFormat = TensorFormat.LINEAR) -> Any:
    tensor = SimpleNamespace(dims=shape, type=dtype, format=layout)
    return SimpleNamespace(desc=tensor, max=shape, **vars(tensor))


def make_plugin(module: Any, operator: str, values: dict[str, float], launcher: Launcher | None = None) -> Any:
    creator = plugin_classes(module)(operator, launcher or Launcher(RecordingDriver()))
    return creator.create_plugin("attention", fields(**values), trt.TensorRTPhase.BUILD)


@pytest.mark.parametrize(("operator", "values"), [(CACHED, CACHED_FIELDS), (SOURCE, SOURCE_FIELDS)])
def test_the_real_registry_makes_plugins_that_keep_their_attributes(
    make_folder: MakeFolder, operator: str, values: dict[str, float]
) -> None:
    launcher = register(trt, make_folder("8.7"))
    assert register(trt, make_folder("8.9", name="more")) is launcher  # a second artifact adds its kernels
    creator = trt.get_plugin_registry().get_creator(operator, "1", "edgeformer")
    assert [field.name for field in creator.field_names] == list(values)
    plugin = creator.create_plugin("attention", fields(**values), trt.TensorRTPhase.RUNTIME)
    again = creator.create_plugin("attention", plugin.get_fields_to_serialize(), trt.TensorRTPhase.RUNTIME)
    for made in (plugin, again, plugin.clone(), plugin.attach_to_context(None)):
        assert made.attributes == Attributes(**values)
        assert (made.plugin_name, made.plugin_version, made.plugin_namespace) == (operator, "1", "edgeformer")
        for capability in trt.PluginCapabilityType.__members__.values():
            assert made.get_capability_interface(capability) is made


def test_fields_that_are_missing_or_make_no_sense_are_named() -> None:
    creator = plugin_classes(trt)(CACHED, Launcher(RecordingDriver()))
    with pytest.raises(ValueError, match="CachedAttention has no num_kv_heads, window"):
        creator.create_plugin("attention", fields(scale=1.0, num_heads=4), trt.TensorRTPhase.BUILD)
    with pytest.raises(ValueError, match="makes no sense with .*num_heads=6, num_kv_heads=4"):
        creator.create_plugin("a", fields(**{**CACHED_FIELDS, "num_kv_heads": 4}), trt.TensorRTPhase.BUILD)


def test_caches_alias_the_inputs_that_they_are_written_into(module: Any) -> None:
    cached, source = make_plugin(module, CACHED, CACHED_FIELDS), make_plugin(module, SOURCE, SOURCE_FIELDS)
    assert isinstance(cached, trt.IPluginV3OneBuildV2)
    assert [cached.get_aliased_input(i) for i in range(cached.num_outputs)] == [-1, 3, 4]
    assert [source.get_aliased_input(i) for i in range(source.num_outputs)] == [-1]


def test_versions_without_aliases_get_the_older_class(module: Any) -> None:
    del module.IPluginV3OneBuildV2
    plugin = make_plugin(module, CACHED, CACHED_FIELDS)
    assert isinstance(plugin, trt.IPluginV3OneBuild)
    assert not isinstance(plugin, trt.IPluginV3OneBuildV2)


def test_outputs_have_the_shapes_and_types_of_their_inputs(module: Any) -> None:
    inputs = ["query", "key", "value", "past_key", "past_value", "lengths"]
    cached, source = make_plugin(module, CACHED, CACHED_FIELDS), make_plugin(module, SOURCE, SOURCE_FIELDS)
    assert cached.get_output_shapes(inputs, [], None) == ["query", "past_key", "past_value"]
    assert source.get_output_shapes(inputs[:4], [], None) == ["query"]
    kinds = [trt.DataType.BF16] * 5 + [trt.DataType.INT32]
    assert cached.get_output_data_types(kinds) == [trt.DataType.BF16] * 3


@pytest.mark.parametrize("dtype", ["HALF", "BF16", "FLOAT"])
def test_one_type_throughout_with_int32_lengths_and_contiguous_tensors(module: Any, dtype: str) -> None:
    kind, plugin = trt.DataType.__members__[dtype], make_plugin(module, CACHED, CACHED_FIELDS)
    tensors = [described((1, 1, 1, 1), kind) for _ in range(9)]
    tensors[5] = described((1,), trt.DataType.INT32)
    assert all(plugin.supports_format_combination(i, tensors, 6) for i in range(9))
    for position, wrong in (
        (0, described((1,), trt.DataType.INT8)),
        (4, described((1,), trt.DataType.BF16 if dtype != "BF16" else trt.DataType.HALF)),
        (5, described((1,), trt.DataType.INT64)),
        (8, described((1,), kind, TensorFormat.CHW2)),
    ):
        changed = [*tensors[:position], wrong, *tensors[position + 1 :]]
        assert not plugin.supports_format_combination(position, changed, 6)


def test_a_call_of_tensorrt_launches_the_kernels_of_its_shapes(module: Any, make_folder: MakeFolder) -> None:
    launcher = Launcher(driver := RecordingDriver())
    launcher.add_folder(make_folder("8.7"))
    values = {"scale": 0.125, "num_heads": 4, "num_kv_heads": 2, "window": 0}
    plugin = make_plugin(module, CACHED, values, launcher)
    half, heads = trt.DataType.HALF, (2, 2, 1, 64)
    inputs = [described(shape, half) for shape in ((2, 4, 1, 64), heads, heads, (2, 2, 50, 64), (2, 2, 50, 64))]
    inputs.append(described((2,), trt.DataType.INT32))
    assert plugin.get_workspace_size(inputs, []) == 2 * 4 * 8 * 66 * 4
    plugin.enqueue([tensor.desc for tensor in inputs], [], [1, 2, 3, 4, 5, 6], [7, 4, 5], 0x800, 9)
    launches = [call for call in driver.calls if call[0] == "launch"]
    assert [launch[2][:3] for launch in launches] == [(1, 4, 8), (8, 1, 1)]
    assert [launch[3] for launch in launches] == [9, 9]
    assert [value for value, _ in launches[0][4][6:8]] == [1, 50]


def test_aliases_are_asked_for_where_the_version_has_them() -> None:
    asked: list[Any] = []
    config = SimpleNamespace(set_preview_feature=lambda feature, on: asked.append((feature, on)))
    new = SimpleNamespace(PreviewFeature=SimpleNamespace(ALIASED_PLUGIN_IO_10_03=3))
    assert allow_aliases(new, config)
    assert asked == [(3, True)]
    assert not allow_aliases(SimpleNamespace(PreviewFeature=SimpleNamespace()), config)


def test_a_module_without_plugins_is_refused_in_one_line(make_folder: MakeFolder) -> None:
    rtx = SimpleNamespace(__name__="tensorrt_rtx", __version__="1.7.1")
    with pytest.raises(BackendUnavailableError, match="tensorrt_rtx 1.7.1 takes no plugins of this kind"):
        register(rtx, make_folder("8.7"))


def test_a_folder_without_kernels_is_refused_before_anything_is_registered(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="kernels.json cannot be read"):
        register(trt, tmp_path)
