"""Times by layer: what can be said of the program without a GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import layer_times
import pytest

from edgeformer.exporter.tensorrt.report import ArtifactReport, BuildReport, Layer
from edgeformer.runtime.errors import BackendUnavailableError

DECODE = 1


@pytest.fixture
def executor() -> Any:
    """Contexts that take a profiler, as TensorRT's do, and the real module's base class of profilers."""
    trt = pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")
    stepper = SimpleNamespace(
        prefill=SimpleNamespace(), make_context=lambda profile: SimpleNamespace(profile=profile), capturing=True
    )
    return SimpleNamespace(module=trt, encoder=SimpleNamespace(), stepper=stepper)


def test_every_context_tells_its_layers_and_none_is_captured(executor: Any) -> None:
    times = layer_times.attach(executor)
    decoding = executor.stepper.make_context(DECODE)
    assert decoding.profile == DECODE
    executor.encoder.profiler.report_layer_time("embed", 0.5)
    executor.stepper.prefill.profiler.report_layer_time("mha", 1.0)
    decoding.profiler.report_layer_time("mha", 3.0)
    assert times == {"encoder": {"embed": [0.5]}, "decoder": {"mha": [1.0, 3.0]}}
    assert executor.stepper.capturing is False


def test_an_artifact_without_engines_is_refused() -> None:
    with pytest.raises(BackendUnavailableError, match="name a TensorRT artifact"):
        layer_times.attach(SimpleNamespace())


TIMES = {"encoder": {"embed": [1.0, 1.0, 1.0]}, "decoder": {"mha": [2.0, 4.0, 9.0], "elsewhere": [2.0]}}


def test_the_layers_that_take_most_come_first() -> None:
    assert layer_times.slowest(TIMES) == [
        ("decoder", "mha", "3", "4.0000", "75.0%"),
        ("encoder", "embed", "3", "1.0000", "15.0%"),
        ("decoder", "elsewhere", "1", "2.0000", "10.0%"),
    ]


def test_the_report_gets_the_median_of_each_layer() -> None:
    layers = tuple(Layer(name, "kgen", "", "float16", (), ()) for name in ("mha", "copy"))
    build = BuildReport(
        role="decoder", attentions=(), cache_updates=(), layers=layers, compiled=True, inputs=(), outputs=(),
        weights={}, plan_bytes=1, memory={}, seconds=1.0, profiles=(), settings={}, versions={}, unused_inputs=(),
        log=(),
    )  # fmt: skip
    report = ArtifactReport("engines", "tensorrt-rtx", "fp16", (), {"decoder": build})
    timed = layer_times.with_times(report, TIMES).builds["decoder"]
    assert [layer.milliseconds for layer in timed.layers] == [4.0, None]


def test_what_cannot_be_timed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "layers.html"
    monkeypatch.setattr(sys, "argv", ["layer_times.py", str(tmp_path), "ort-cpu-fp32", "-o", str(output)])
    with pytest.raises(SystemExit, match=r"error: report .*ort-cpu-fp32.report.json: it cannot be read: No such file"):
        layer_times.main()
    assert not output.exists()
    assert capsys.readouterr().out == ""
