"""Encoders and language models are measured as encoder-decoders are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.cli.benching.calls import timed_call
from edgeformer.cli.benching.encoding import Encoding, open_subject, vocabulary
from edgeformer.runtime import GenerationConfig
from edgeformer.runtime.cores import Cores

QUICK = ("--rounds", 2, "--warmup", 1, "--threads", 1, "--calls-only", "--json")


@pytest.mark.parametrize("kind", ["sentences", "classes", "entities", "masks"])
def test_a_call_of_an_encoder_is_one_step_that_reads_its_inputs(
    encoder_bundle: Callable[[str], Path], kind: str
) -> None:
    subject = open_subject(encoder_bundle(kind), "onnx", Cores(1))
    assert isinstance(subject, Encoding)
    text = "the cat sat"
    call = timed_call(subject, [text, text], GenerationConfig())
    assert call.steps == ()
    assert 0 < call.first <= call.seconds
    assert call.tokens == 2 * len(subject.ids(text))
    ids = vocabulary(subject.bundle.manifest)
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
        assert set(cell["roofline"].values()) == {"not measured"}  # nobody asked for ceilings


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


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a tiny random Llama, whose words are the letters."""
    transformers = pytest.importorskip("transformers")
    import torch
    from tokenizers import Tokenizer, models

    from edgeformer.exporter.exporting import export_checkpoint

    vocabulary = {token: i for i, token in enumerate(("<pad>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz"))}
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=24, intermediate_size=28, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=40, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("language")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.LlamaForCausalLM(config).save_pretrained(folder / "checkpoint")
    Tokenizer(models.BPE(vocabulary, [])).save(str(folder / "checkpoint" / "tokenizer.json"))
    export_checkpoint(folder / "checkpoint", folder / "bundle")
    return folder / "bundle"


def test_a_language_model_is_measured_with_its_ceilings(cli: Callable[..., Any], language_model: Path) -> None:
    grid = ("--prompt", "4,8", "--new-tokens", 5, "--rounds", 2, "--warmup", 0, "--threads", 1, "--json")
    (artifact,) = cli("bench", language_model, *grid).ok.json["artifacts"]
    assert set(artifact["weights"]) == {"decoder"}
    weights = artifact["weights"]["decoder"]
    for cell, prompt in zip(artifact["cells"], (4, 8), strict=True):
        assert [len(steps) for steps in cell["samples"]["itl"]] == [4, 4]
        assert cell["roofline"]["step"]["flops"] == 2 * weights["count"]
        first = 2 * ((weights["count"] - weights["head"]) * prompt + weights["head"])
        assert cell["roofline"]["first_token"]["flops"] == first


def test_prompt_and_new_tokens_must_fit_a_language_model(cli: Callable[..., Any], language_model: Path) -> None:
    cli("bench", language_model, "--prompt", 38, "--new-tokens", 9, *QUICK).refused("no room for 9 new ones")
