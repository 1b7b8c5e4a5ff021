"""Drives NVIDIA's `tensorrt.plugin`, as its lean runtime has it, through what a builder asks of a plugin.

A program of its own: it puts a module named `tensorrt` together. The lean runtime lacks what only builders need:
formats and symbolic dimensions. Here a dimension is a number. The last line that it prints is a JSON object.
"""

from __future__ import annotations

import enum
import json
import operator
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import tensorrt_lean as lean

from edgeformer.exporter.tensorrt.plugins import offer_plugins
from edgeformer.exporter.tensorrt.requests import BuildRequest
from edgeformer.runtime.plugins.kernels import CACHED, SOURCE


class Dimension:
    """A symbolic dimension whose value is known."""

    def __init__(self, value: int) -> None:
        self.value = value

    def is_constant(self) -> bool:
        return True

    def get_constant_value(self) -> int:
        return self.value


class Expressions:
    """What builds expressions of dimensions."""

    def constant(self, value: int) -> Dimension:
        return Dimension(value)

    def operation(self, kind: Any, first: Dimension, second: Dimension) -> Dimension:
        known = {"SUM": operator.add, "PROD": operator.mul, "CEIL_DIV": lambda a, b: -(-a // b)}
        return Dimension(known[kind.name](first.value, second.value))


def assemble() -> Any:
    """A module `tensorrt` of the lean runtime and those stand-ins; its `tensorrt.plugin` is NVIDIA's own."""
    module = types.ModuleType("tensorrt")
    module.__dict__.update({name: value for name, value in vars(lean).items() if not name.startswith("__")})
    stand_ins = {
        "TensorFormat": enum.Enum("TensorFormat", ["LINEAR"]),
        "ITensor": type("ITensor", (), {}),
        "IDimensionExpr": Dimension,
        "ISymExpr": type("ISymExpr", (), {}),
        "DimsExprs": lambda length: [None] * length,
        "DynamicPluginTensorDesc": type("DynamicPluginTensorDesc", (), {}),
        "PluginTensorDesc": types.SimpleNamespace,
    }
    module.__dict__.update(stand_ins)
    module.__path__ = [str(Path(sys.modules["tensorrt_lean_bindings"].__file__ or "").parent)]
    sys.modules["tensorrt"] = module
    return module


def described(trt: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    tensor = trt.DynamicPluginTensorDesc()
    tensor.desc = types.SimpleNamespace(dims=shape, type=dtype, format=trt.TensorFormat.LINEAR, scale=1.0)
    return tensor


def asked(trt: Any, name: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], tactic: int) -> Any:
    """What TensorRT is told of one call, by the calls that it makes itself."""
    fields = [
        trt.PluginField(key, value, trt.PluginFieldType.FLOAT32 if key == "scale" else trt.PluginFieldType.INT32)
        for key, value in attributes.items()
    ]
    creator = trt.get_plugin_registry().get_creator(name, "1", "edgeformer")
    request = trt.QuickPluginCreationRequest.STRICT_AOT
    arguments = (name, "edgeformer", trt.PluginFieldCollection(fields), trt.TensorRTPhase.BUILD, request)
    plugin = creator.create_plugin(*arguments)
    types_in = [trt.DataType.HALF] * (len(shapes) - 1) + [trt.DataType.INT32]
    types_out = plugin.get_output_data_types(types_in, [len(shape) for shape in shapes])
    symbols = [[Dimension(extent) for extent in shape] for shape in shapes]
    shapes_out = plugin.get_output_shapes(symbols, [], Expressions())
    inputs = [described(trt, shape, dtype) for shape, dtype in zip(shapes, types_in, strict=True)]
    numbers_out = [tuple(extent.value for extent in shape) for shape in shapes_out]
    outputs = [described(trt, shape, dtype) for shape, dtype in zip(numbers_out, types_out, strict=True)]
    offered = plugin.get_supported_format_combinations([*inputs, *outputs], len(inputs))
    plugin.configure_plugin(inputs, outputs)
    tactics = plugin.get_valid_tactics()
    plugin.set_tactic(tactic)
    launch, extra = types.SimpleNamespace(), ExtraArguments()
    plugin.get_launch_params(symbols, [*inputs, *outputs], len(inputs), launch, extra, Expressions())
    entry, ptx = plugin.get_kernel([tensor.desc for tensor in inputs], [tensor.desc for tensor in outputs])
    return {
        "shapes": numbers_out,
        "aliases": [plugin.get_aliased_input(i) for i in range(len(outputs))],
        "types": [tensor.type.name for tensor in offered],
        "tactics": tactics,
        "launch": {key: value.expr.value for key, value in vars(launch).items()},
        "extra": [expression.expr.value for expression in extra],
        "entry": entry,
        "ptx": ptx.decode(),
    }


class ExtraArguments(dict[int, Any]):
    """What TensorRT collects the numbers in that a kernel gets besides its tensors."""

    nbSymExprs = 0  # noqa: N815 (TensorRT's name)

    def __iter__(self) -> Any:
        return iter([self[i] for i in range(self.nbSymExprs)])


def main(folder: Path) -> None:
    trt = assemble()
    offer_plugins(trt, BuildRequest("tensorrt", "decoder", "", "", (), (), kernels=str(folder), ahead_of_time=True))
    numbers = {"num_heads": np.array([4], np.int32), "num_kv_heads": np.array([2], np.int32)}
    numbers = {"scale": np.array([0.125], np.float32), **numbers}
    query, new, cache, lengths = (3, 4, 9, 64), (3, 2, 9, 64), (3, 2, 40, 64), (3,)
    cached = [query, new, new, cache, cache, lengths]
    told = {
        "cached": asked(trt, CACHED, cached, {**numbers, "window": np.array([0], np.int32)}, 1),
        "short": asked(trt, CACHED, cached, {**numbers, "window": np.array([0], np.int32)}, 2),
        "source": asked(trt, SOURCE, [query, cache, cache, lengths], numbers, 1),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
