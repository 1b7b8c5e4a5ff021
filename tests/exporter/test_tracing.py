"""A module that torch cannot export: one message that says where and why, and a file with all that torch said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from edgeformer.exporter.exporting import export_module
from edgeformer.runtime.errors import ModuleError

from .own_decoder import OwnDecoder

Step = tuple[Tensor, list[Tensor]]


class Branches(OwnDecoder):
    def step(self, input_ids: Tensor, lengths: Tensor, at: Tensor, past: Sequence[Tensor]) -> Step:
        if input_ids.sum() > 3:
            input_ids = input_ids + 1
        return super().step(input_ids, lengths, at, past)


class HasNoOnnx(OwnDecoder):
    def step(self, input_ids: Tensor, lengths: Tensor, at: Tensor, past: Sequence[Tensor]) -> Step:
        logits, present = super().step(input_ids, lengths, at, past)
        return logits + torch.linalg.eigvals(self.layers[0].output.weight[:36, :36]).real.sum(), present


@pytest.mark.parametrize(
    ("module", "said", "place"),
    [
        (Branches, "Could not guard on data-dependent expression", "test_tracing.py:"),
        (HasNoOnnx, "No ONNX function found for .*linalg_eig", ""),
    ],
)
def test_what_torch_cannot_export_is_said_in_one_message(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], module: type[OwnDecoder], said: str, place: str
) -> None:
    with pytest.raises(ModuleError, match=said) as caught:
        export_module(module(), tmp_path / "bundle")
    (problem,) = caught.value.problems
    log = tmp_path / "bundle.export-log.txt"
    assert str(caught.value).startswith(f"{module.__name__}: torch cannot export it")
    assert place in problem
    assert "torch.where" in problem
    assert str(log) in problem
    assert "\n" not in problem
    assert "\x1b" not in problem
    assert "Traceback" in log.read_text()
    assert "torch.onnx" in log.read_text()
    assert not (tmp_path / "bundle").exists()
    assert capfd.readouterr() == ("", "")
