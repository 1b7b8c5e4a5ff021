"""The layers of a compiled engine: from the builder's log, where no GPU is needed, or from the engine inspector.

With detailed profiling verbosity the builder ends its verbose log with the engine that it compiled, a line for each
layer: its kind, the kernel it chose, and in `Metadata` the ONNX nodes that it computes. The inspector tells the same of
an engine that a GPU has loaded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from edgeformer.exporter.tensorrt.report import Layer, LogLine, Shape, Tensor

DTYPES = {"half": "float16", "fp16": "float16", "bf16": "bfloat16", "float": "float32", "fp32": "float32"}

LISTING = "Layers:"  # begins the line of the log that holds them all

LAYER = re.compile(
    r"Name: (?P<name>.*?), LayerType: (?P<kind>.*?), Inputs: \[(?P<inputs>.*?)\], (?:Constants: \[.*?\], )?"
    r"Outputs: \[(?P<outputs>.*?)\], (?P<rest>(?:ParameterType|TacticName|StreamId|Metadata).*)"
)
TENSOR = re.compile(r"\{ Name: (?P<name>.*?), (?:Location: .*?, )?Dimensions: \[(?P<shape>.*?)\],(?P<rest>.*?)\}")
KERNEL = re.compile(r"TacticName: (.*?)(?:, StreamId|, Metadata|$)")
METADATA = re.compile(r"Metadata: (.*)$")
NODES = re.compile(r"\[ONNX Layer: (.*?)\](?=\[|[\x1e\x1f]|$)")


def dtype_name(name: str) -> str:
    """A name such as float16 for what TensorRT calls HALF, Half, FP16 or DataType.HALF."""
    plain = name.rpartition(".")[2].lower()
    return DTYPES.get(plain, plain)


def logged_layers(log: Iterable[LogLine]) -> tuple[Layer, ...]:
    """Layers of the engine that the log ends with; none where the log does not tell them."""
    listings = (line.text.splitlines() for line in log if line.text.startswith(LISTING))
    found = [[layer for text in lines if (layer := parse_line(text))] for lines in listings]
    return tuple(found[-1]) if found else ()


def parse_line(text: str) -> Layer | None:
    match = LAYER.fullmatch(text)
    if match is None:
        return None
    inputs, outputs = (tuple(map(parse_tensor, TENSOR.finditer(match[part]))) for part in ("inputs", "outputs"))
    kernel, metadata = KERNEL.search(match["rest"]), METADATA.search(match["rest"])
    said = kernel[1] if kernel else "", metadata[1] if metadata else ""
    return make_layer(match["name"], match["kind"], *said, inputs, outputs)


def parse_tensor(match: re.Match[str]) -> Tensor:
    stated = re.search(r"Datatype: ([^,]*)", match["rest"])
    return Tensor(match["name"], stated_dtype(stated[1]) if stated else "?", shape_of(match["shape"].split(",")))


def inspected_layers(trt: Any, engine: Any) -> tuple[Layer, ...]:
    """Layers of an engine that a GPU has loaded, as its inspector tells them; none where it can't be made out.

    From the vendor's documentation: not run yet, for want of a GPU. So a surprise here costs a table, not the build.
    """
    try:
        text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
        return tuple(map(parse_inspected, json.loads(text)["Layers"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        return ()


def parse_inspected(values: Mapping[str, Any] | str) -> Layer:
    """A layer of the inspector's JSON: an object, or its name alone where the engine was built without details."""
    if isinstance(values, str):
        return Layer(values, "", "", "", (), ())
    inputs, outputs = (
        tuple(
            Tensor(str(item.get("Name", "")), inspected_dtype(item), shape_of(item.get("Dimensions", ())))
            for item in values.get(part, ())
        )
        for part in ("Inputs", "Outputs")
    )
    name, kind, kernel, metadata = (str(values.get(k, "")) for k in ("Name", "LayerType", "TacticName", "Metadata"))
    return make_layer(name, kind, kernel, metadata, inputs, outputs)


def inspected_dtype(values: Mapping[str, Any]) -> str:
    return stated_dtype(str(values.get("Datatype", values.get("Format/Datatype", "?"))))


def stated_dtype(text: str) -> str:
    """The type in "Half", or in "Row major linear FP16 format", as older versions say it."""
    words = text.split()
    if len(words) == 1:
        return dtype_name(words[0])
    before = re.search(r"(\w+) format", text)
    return dtype_name(before[1]) if before else "?"


def make_layer(
    name: str, kind: str, kernel: str, metadata: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
) -> Layer:
    nodes = tuple(NODES.findall(metadata))
    return Layer(name, kind, kernel, outputs[0].dtype if outputs else "", inputs, outputs, nodes)


def shape_of(dims: Iterable[str | int]) -> Shape:
    numbers = [int(dim) for dim in dims if str(dim).strip()]
    return tuple(number if number >= 0 else "?" for number in numbers)
