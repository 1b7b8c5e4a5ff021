"""Encoders and language models are measured as every model is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.cli.benching.artifacts import vocabulary
from edgeformer.cli.benching.calls import timed_call
from edgeformer.cli.benching.encoding import Encoding, open_subject
from edgeformer.runtime import GenerationConfig

QUICK = ("--rounds", 2, "--warmup", 1, "--threads", 1, "--calls-only", "--json")


@pytest.mark.parametrize("kind", ["sentences", "classes", "entities", "masks"])
def test_a_call_of_an_encoder_is_one_step_that_reads_its_inputs(
    encoder_bundle: Callable[[str], Path], kind: str
) -> None:
    subject = open_subject(encoder_bundle(kind), "onnx", 1)
    assert isinstance(subject, Encoding)
    text = "the cat sat"
    call = timed_call(subject, [text, text], GenerationConfig())
    assert call.steps == ()
    assert 0 < call.first <= call.seconds
    assert call.tokens == 2 * len(subject.ids(text))
    ids = vocabulary(subject)
    assert timed_call(subject, [ids[:4], ids[:4]], GenerationConfig()).tokens == 8


def test_an_encoder_is_measured_over_its_grid(cli: Callable[..., Any], encoder_bundle: Callable[[str], Path]) -> None:
    found = cli("bench", encoder_bundle("sentences"), "--prompt", "4,9", "--batch", "1,3", *QUICK).ok.json
    cells = found["artifacts"][0]["cells"]
    assert [(c["batch"], c["prompt"], c["new_tokens"]) for c in cells] == [
        (1, 4, None),
        (1, 9, None),
        (3, 4, None),
        (3, 9, None),
    ]
    for cell in cells:
        assert cell["samples"]["tokens"] == [cell["batch"] * cell["prompt"]] * 2
        assert cell["itl_ms"] is None
        assert cell["roofline"] == {
            "step": "not supported",
            "first_token": "not supported",
        }


def test_an_encoder_refuses_what_only_writing_needs(
    cli: Callable[..., Any], encoder_bundle: Callable[[str], Path], tmp_path: Path
) -> None:
    bundle = encoder_bundle("sentences")
    for option in ("--new-tokens", "--max-new-tokens", "--num-beams"):
        cli("bench", bundle, option, 2, *QUICK).refused("an encoder writes nothing")
    (tmp_path / "long.txt").write_text("the cat\n" + "the cat " * 99)
    cli("bench", bundle, "--inputs", tmp_path / "long.txt", *QUICK).refused("long.txt, line 2")


def test_requests_of_an_encoder_are_replayed(
    cli: Callable[..., Any], encoder_bundle: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps({"at": 0, "text": text}) + "\n" for text in ("the cat", "a dog ran")))
    (artifact,) = cli("bench", encoder_bundle("sentences"), "--replay", path, "--batch", 2, *QUICK).ok.json["artifacts"]
    assert artifact["cells"][0]["calls"] == 2
