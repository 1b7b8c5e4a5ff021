"""Our attention operators as TensorRT plugins (IPluginV3, from TensorRT 10.0).

What they compute is said in `edgeformer.exporter.tensorrt.attention_plugin`. The classes are made for the module that
is given, `tensorrt` or its lean runtime: they inherit from its own, and everything else is plain Python.

From TensorRT 10.3 a cache is written in place: its output aliases its input, a preview feature that the builder's
configuration has to ask for (`allow_aliases`). Where it is not, the cache is copied.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgeformer.runtime.plugins.attention import Extents, attend, workspace_bytes
from edgeformer.runtime.plugins.kernels import CACHED, SOURCE, Variant
from edgeformer.runtime.plugins.launching import Launcher

NAMESPACE, VERSION = "edgeformer", "1"
ALIASED_IO = "ALIASED_PLUGIN_IO_10_03"  # of PreviewFeature
DTYPES = {"HALF": "float16", "BF16": "bfloat16", "FLOAT": "float32"}  # names of DataType
INTEGERS = {CACHED: ("num_heads", "num_kv_heads", "window"), SOURCE: ("num_heads", "num_kv_heads")}
NUM_INPUTS = {CACHED: 6, SOURCE: 4}
ALIASES = {CACHED: (-1, 3, 4), SOURCE: (-1,)}  # for every output: the input whose memory it is, or none


@dataclasses.dataclass(frozen=True, slots=True)
class Attributes:
    """The operator's attributes."""

    scale: float
    num_heads: int
    num_kv_heads: int
    window: int = 0


class AttentionPlugin:
    """Everything of the plugin that is not TensorRT's; `plugin_classes` adds TensorRT's classes.

    Attributes:
        trt: the module whose types the descriptions hold.
        bases: TensorRT's classes.
    """

    trt: Any
    bases: tuple[Any, ...]

    def __init__(self, operator: str, attributes: Attributes, launcher: Launcher) -> None:
        for base in self.bases:
            base.__init__(self)
        self.operator, self.attributes, self.launcher = operator, attributes, launcher
        self.plugin_name, self.plugin_version, self.plugin_namespace = operator, VERSION, NAMESPACE
        self.num_outputs = len(ALIASES[operator])
        self.timing_cache_id = ""  # nothing to time: there is one tactic

    def get_capability_interface(self, kind: Any) -> AttentionPlugin:
        return self

    def clone(self) -> AttentionPlugin:
        return type(self)(self.operator, self.attributes, self.launcher)

    # Building

    def get_output_data_types(self, input_types: Sequence[Any]) -> list[Any]:
        return [input_types[0]] * self.num_outputs

    def get_output_shapes(self, inputs: Sequence[Any], shape_inputs: Sequence[Any], builder: Any) -> list[Any]:
        return [inputs[max(alias, 0)] for alias in ALIASES[self.operator]]

    def get_aliased_input(self, output_index: int) -> int:
        return ALIASES[self.operator][output_index]

    def supports_format_combination(self, position: int, tensors: Sequence[Any], num_inputs: int) -> bool:
        """The activations' type throughout, int32 lengths, everything contiguous."""
        tensor = tensors[position].desc
        if tensor.format != self.trt.TensorFormat.LINEAR:
            return False
        if position == NUM_INPUTS[self.operator] - 1:
            return bool(tensor.type == self.trt.DataType.INT32)
        return tensor.type.name in DTYPES and bool(tensor.type == tensors[0].desc.type)

    def configure_plugin(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Nothing is chosen before sizes are known."""

    def get_valid_tactics(self) -> list[int]:
        return []

    def get_workspace_size(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
        variant = self.variant(inputs[0].desc)
        return workspace_bytes(variant, self.extents([tensor.max for tensor in inputs]))

    # Running

    def get_fields_to_serialize(self) -> Any:
        values = {name: getattr(self.attributes, name) for name in ("scale", *INTEGERS[self.operator])}
        return fields_of(self.trt, self.operator, values)

    def attach_to_context(self, resources: Any) -> AttentionPlugin:
        return self.clone()

    def on_shape_change(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Sizes are read at every call."""

    def set_tactic(self, tactic: int) -> None:
        """There is one tactic."""

    def enqueue(
        self,
        input_desc: Sequence[Any],
        output_desc: Sequence[Any],
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> None:
        variant, extents = self.variant(input_desc[0]), self.extents([tensor.dims for tensor in input_desc])
        attend(self.launcher, variant, extents, inputs, outputs, workspace, stream)

    def variant(self, query: Any) -> Variant:
        """What is computed for a query of this description."""
        return Variant(
            self.operator, DTYPES[query.type.name], int(query.dims[3]), **dataclasses.asdict(self.attributes)
        )

    def extents(self, shapes: Sequence[Any]) -> Extents:
        """Sizes in the inputs' shapes: of the query, and of the cache or the source."""
        keys = shapes[3] if self.operator == CACHED else shapes[1]
        return Extents(batch=int(shapes[0][0]), q_len=int(shapes[0][2]), capacity=int(keys[2]))


class AttentionCreator:
    """Makes plugins from the fields of an ONNX node or of an engine; `plugin_classes` adds TensorRT's class."""

    trt: Any
    base: Any
    plugin: type[AttentionPlugin]

    def __init__(self, operator: str, launcher: Launcher) -> None:
        self.base.__init__(self)
        self.operator, self.launcher = operator, launcher
        self.name, self.plugin_version, self.plugin_namespace = operator, VERSION, NAMESPACE
        self.field_names = fields_of(self.trt, operator, {})

    def create_plugin(self, name: str, fields: Any, phase: Any) -> AttentionPlugin:
        return self.plugin(self.operator, read_fields(self.operator, fields), self.launcher)


def fields_of(trt: Any, operator: str, values: Mapping[str, float]) -> Any:
    """A field for every attribute, empty where there is no value."""
    integer: tuple[Any, Any] = (np.int32, trt.PluginFieldType.INT32)
    kinds = {"scale": (np.float32, trt.PluginFieldType.FLOAT32), **dict.fromkeys(INTEGERS[operator], integer)}
    fields = [
        trt.PluginField(name, np.array([values[name]] if name in values else [], dtype), kind)
        for name, (dtype, kind) in kinds.items()
    ]
    return trt.PluginFieldCollection(fields)


def read_fields(operator: str, fields: Any) -> Attributes:
    """The attributes in a collection of fields.

    Raises:
        ValueError: one is missing or makes no sense; TensorRT logs it.
    """
    given = {field.name: field.data[0] for field in fields if field.size}
    if missing := [name for name in ("scale", *INTEGERS[operator]) if name not in given]:
        raise ValueError(f"{operator} has no {', '.join(missing)}: rewrite the graph with this edgeformer")
    integers = {name: int(given[name]) for name in INTEGERS[operator]}
    attributes = Attributes(scale=float(given["scale"]), **integers)
    if attributes.num_kv_heads < 1 or attributes.num_heads % attributes.num_kv_heads or attributes.window < 0:
        raise ValueError(f"{operator} makes no sense with {attributes}")
    return attributes


def plugin_classes(trt: Any) -> type[AttentionCreator]:
    """The creator's class for a TensorRT module; it makes plugins of the module's own kind."""
    build = getattr(trt, "IPluginV3OneBuildV2", None) or trt.IPluginV3OneBuild  # V2 from 10.3: aliases
    bases = (trt.IPluginV3, trt.IPluginV3OneCore, build, trt.IPluginV3OneRuntime)
    plugin = type("EdgeformerAttention", (AttentionPlugin, *bases), {"trt": trt, "bases": bases})
    base = trt.IPluginCreatorV3One
    members = {"trt": trt, "base": base, "plugin": plugin}
    return type("EdgeformerAttentionCreator", (AttentionCreator, base), members)


def allow_aliases(trt: Any, config: Any) -> bool:
    """Ask a builder's configuration for plugins that write an input in place; False where the version has none."""
    feature = getattr(trt.PreviewFeature, ALIASED_IO, None)
    if feature is not None:
        config.set_preview_feature(feature, True)
    return feature is not None
