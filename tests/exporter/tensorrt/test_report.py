"""Reports as records, as JSON, as a page; and layers as TensorRT writes them."""

from __future__ import annotations

import dataclasses
import html.parser
import json
import re
from pathlib import Path
from typing import Any

import pytest

from edgeformer.exporter.tensorrt.engine_layers import inspected_layers, logged_layers, parse_inspected
from edgeformer.exporter.tensorrt.report import (
    ArtifactReport,
    Attention,
    BuildReport,
    CacheUpdate,
    Layer,
    LogLine,
    Tensor,
    read_report,
)
from edgeformer.exporter.tensorrt.report_html import size, to_html
from edgeformer.runtime.errors import BundleError

QUERY = Tensor("query", "float16", ("batch", 8, "q_len", 64))
ATTENTION = Attention(
    node="node_3",
    module="layers.0.attention",
    form="native",
    fused=True,
    evidence="the compiled engine has a kernel that does it all",
    kernels=("_gemm_mha_v2", "_gemv_mha_v1"),
    dtype="float16",
    query=("batch", 8, "q_len", 64),
    key=("batch", 2, 128, 64),
    mask="boolean (batch, 1, q_len, 128)",
)
BUILD = BuildReport(
    role="decoder",
    attentions=(ATTENTION, dataclasses.replace(ATTENTION, node="node_9", module="", fused=None, kernels=())),
    cache_updates=(CacheUpdate("write", "past.0.key", "present.0.key", "float16", ("batch", 2, 128, 64)),),
    layers=(
        Layer("mha", "kgen", "_gemm_mha_v2_0x1", "float16", (QUERY,), (QUERY,), ("node_3",)),
        Layer("copy", "copy", "", "int64", (), (Tensor("ids", "int64", ("?",)),)),
    ),
    compiled=True,
    inputs=(QUERY,),
    outputs=(Tensor("logits", "float32", ("batch", "n", 99)),),
    weights={"float16": 2_500_000, "int64": 16},
    plan_bytes=3_000_000,
    memory={"build peak": 1_200_000_000},
    seconds=2.25,
    profiles=({"batch": (1, 4, 8), "q_len": (1, 8, 64)}, {"batch": (1, 4, 8), "q_len": (1, 1, 1)}),
    settings={"flags": "WEIGHT_STREAMING"},
    versions={"tensorrt_rtx": "1.7.1"},
    unused_inputs=("input lengths of the graph is read by nothing",),
    log=(LogLine("warning", "something is <odd>"),),
)
REPORT = ArtifactReport("tensorrt-rtx-fp16", "tensorrt-rtx", "fp16", ("8.9", "12.0"), {"decoder": BUILD})


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(REPORT.to_json(), encoding="utf-8")
    assert read_report(tmp_path) == REPORT


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "it cannot be read: No such file"),
        ("{", "it is damaged: JSONDecodeError"),
        ("[]", "it is damaged: TypeError"),
        ('{"report_version": 1}', "it is damaged: KeyError: 'builds'"),
        ('{"report_version": 99}', "its version is 99, this edgeformer reads up to 1: upgrade edgeformer"),
        (REPORT.to_json().replace('"fused": true', '"melted": true'), "it is damaged: TypeError"),
    ],
    ids=["missing", "cut off", "a list", "without its keys", "newer", "with another key"],
)
def test_a_report_that_cannot_be_read_says_why(tmp_path: Path, content: str | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "report.json").write_text(content, encoding="utf-8")
    with pytest.raises(BundleError, match=re.escape(reason)):
        read_report(tmp_path)


def test_times_go_to_the_layers_of_their_name() -> None:
    timed = BUILD.with_times({"mha": 0.25, "elsewhere": 1.0})
    assert [layer.milliseconds for layer in timed.layers] == [0.25, None]


class Page(html.parser.HTMLParser):
    """Tags with their attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += f"{data} "


def test_the_page_says_what_the_report_does() -> None:
    page = Page(to_html(REPORT))
    assert page.open == []  # every element is closed where it should be
    text = " ".join(page.text.split())
    for part in (
        "Fused attentions 1 of 2",
        "Plans 3.0 MB",
        "GPUs (compute capability) 8.9, 12.0",
        "plan 3.0 MB, built in 2.2 s build peak 1.2 GB",
        "float16 2.5 MB int64 16 bytes",
        "tensorrt_rtx 1.7.1",
        "decoder: input lengths of the graph is read by nothing",
        "layers.0.attention node_3 fused native _gemm_mha_v2 , _gemv_mha_v1 float16 (batch, 8, q_len, 64)",
        "node_9 not known",
        "past.0.key present.0.key",
        "profile batch q_len 0 1 to 8, usually 4 1 to 64, usually 8 1 1 to 8, usually 4 1",
        "flags WEIGHT_STREAMING",
        "Layers: 2 Of the compiled engine, for every profile. No GPU measured their times.",
        "warning something is <odd>",
    ):
        assert part in text, part


def test_times_are_shown_where_there_are_any() -> None:
    timed = dataclasses.replace(REPORT, builds={"decoder": BUILD.with_times({"mha": 0.25})})
    text = " ".join(Page(to_html(timed)).text.split())
    assert "0.250 mha" in text
    assert "No GPU measured" not in text


def test_nothing_in_a_report_becomes_markup_or_script() -> None:
    evil = '"><script>alert(1)</script><img src=x onerror=alert(2)>'

    def spoil(value: Any) -> Any:
        if isinstance(value, str):
            return evil + value if value else ""
        if isinstance(value, dict):
            return {spoil(key): spoil(each) for key, each in value.items()}
        if isinstance(value, tuple):
            return tuple(spoil(each) for each in value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return type(value)(**{f.name: spoil(getattr(value, f.name)) for f in dataclasses.fields(value)})
        return value

    page, plain = Page(to_html(spoil(REPORT))), Page(to_html(REPORT))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert "<script>alert(1)" in page.text  # as text
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_the_page_needs_no_network_and_says_so_to_the_browser() -> None:
    text = to_html(REPORT)
    page = Page(text)
    assert not any(name in attributes for _, attributes in page.tags for name in ("src", "href", "srcset"))
    assert "url(" not in text
    assert "@import" not in text
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_every_filter_belongs_to_a_table() -> None:
    two = dataclasses.replace(REPORT, builds={"encoder": BUILD, "decoder": BUILD})
    page = Page(to_html(two))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert [a["data-table"] for _, a in page.tags if "data-table" in a] == ["encoder-layers", "decoder-layers"]
    assert {"encoder-layers", "decoder-layers"} <= set(ids)


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (21_640_000, "21.6 MB"), (5 * 10**12, "5000.0 GB")],
)
def test_sizes_are_for_people(count: int, said: str) -> None:
    assert size(count) == said.replace(" ", "\N{NO-BREAK SPACE}")  # so that no line ends between the two


MHA = (
    "Name: _gemm_mha_v2_myl0_11, LayerType: kgen, Inputs: [ { Name: q, Dimensions: [-1,4,-1,64], "
    "Strides: [-1,-1,64,1], StrideOrder: [3,2,1,0], Datatype: Half, Format: (Linear) Row major linear format }, "
    "{ Name: m, Dimensions: [], Datatype: Bool, Format: (Linear) x }], Constants: [ { Name: c, Dimensions: [1], "
    "Datatype: Float }], Outputs: [ { Name: o, Dimensions: [2,64], Strides: [64,1], Datatype: BFloat16, "
    "Format: (Linear) x }], TacticName: _gemm_mha_v2_0xab, StreamId: 0, "
    "Metadata: [ONNX Layer: scale[0]][ONNX Layer: attend]"
)
SHAPES = (
    "Name: __mye1_myl0_0, LayerType: shape_call, Inputs: [], Constants: [], Outputs: [], TacticName: , StreamId: 0, "
    "Metadata: "
)
LISTED = f"Layers:\n{MHA}\n{SHAPES}\n\nI/O Tensors:\n Name: q, IOMode: Input, DataType: Half, Dimensions: [-1,4,-1,64]"


def test_the_layers_that_the_log_lists_are_read() -> None:
    mha, shapes = logged_layers([LogLine("verbose", "Layers elsewhere"), LogLine("verbose", LISTED)])
    assert (mha.name, mha.kind, mha.kernel) == ("_gemm_mha_v2_myl0_11", "kgen", "_gemm_mha_v2_0xab")
    assert mha.nodes == ("scale[0]", "attend")
    assert mha.inputs == (Tensor("q", "float16", ("?", 4, "?", 64)), Tensor("m", "bool", ()))
    assert mha.outputs == (Tensor("o", "bfloat16", (2, 64)),)
    assert mha.precision == "bfloat16"
    assert (shapes.kind, shapes.kernel, shapes.inputs, shapes.outputs, shapes.nodes) == ("shape_call", "", (), (), ())


def test_a_log_without_a_listing_has_no_layers() -> None:
    assert logged_layers([LogLine("info", "Name: x, LayerType: y"), LogLine("verbose", "Layers:")]) == ()


@pytest.mark.parametrize(
    ("tensor", "dtype"),
    [
        ({"Datatype": "Half", "Format": "Row major linear format"}, "float16"),
        ({"Format/Datatype": "Row major linear FP16 format"}, "float16"),
        ({"Format/Datatype": "Half"}, "float16"),
        ({"Format/Datatype": "N/A due to dynamic shapes"}, "?"),
        ({}, "?"),
    ],
    ids=["newer", "older", "one word", "not known", "absent"],
)
def test_the_inspectors_layers_are_read_as_versions_write_them(tensor: dict[str, str], dtype: str) -> None:
    listed = [{"Name": "x", "Location": "Device", "Dimensions": [-1, 64], **tensor}]
    layer = parse_inspected(
        {
            "Name": "fused", "LayerType": "kgen", "Inputs": listed, "Outputs": listed, "TacticName": "_gemm_mha_v2_0x1",
            "StreamId": 0, "Metadata": "[ONNX Layer: score]\x1f[ONNX Layer: share]",
        }
    )  # fmt: skip
    assert layer.nodes == ("score", "share")
    assert layer.outputs == (Tensor("x", dtype, ("?", 64)),)
    assert layer.precision == dtype


class Inspected:
    """Stands for the module, an engine, and its inspector."""

    LayerInformationFormat = type("LayerInformationFormat", (), {"JSON": "json"})

    def __init__(self, text: str) -> None:
        self.text = text

    def create_engine_inspector(self) -> Inspected:
        return self

    def get_engine_information(self, form: str) -> str:
        assert form == "json"
        return self.text


def test_an_inspector_that_cannot_be_made_out_costs_the_layers_and_nothing_else() -> None:
    listed = {"Layers": [{"Name": "fused", "LayerType": "kgen"}, "copy"], "Bindings": []}
    assert [layer.name for layer in inspected_layers(Inspected, Inspected(json.dumps(listed)))] == ["fused", "copy"]
    for surprise in (Inspected(""), Inspected("[]"), Inspected('{"Layers": [1]}'), None):
        assert inspected_layers(Inspected, surprise) == ()


def test_an_engine_without_details_tells_the_names_of_its_layers() -> None:
    assert parse_inspected("node_1 + node_2").name == "node_1 + node_2"


def test_the_report_is_json_that_others_can_read() -> None:
    values = json.loads(REPORT.to_json())
    assert values["report_version"] == 1
    assert values["builds"]["decoder"]["attentions"][0]["fused"] is True
    assert values["builds"]["decoder"]["attentions"][1]["fused"] is None
