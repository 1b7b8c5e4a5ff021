"""The command line on encoders: what a head is for, as text and as JSON."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeformer.runtime import load_encoder

MakeBundle = Callable[[str], Path]
Run = Callable[..., Any]


def values_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_one_text_gives_the_first_of_its_numbers(cli: Run, encoder_bundle: MakeBundle) -> None:
    result = cli("run", str(encoder_bundle("sentences")), "the cat")
    (vector,) = load_encoder(encoder_bundle("sentences")).encode("the cat")
    shown = " ".join(f"{number:.4f}" for number in vector[:6])
    assert result.ok.out == f"32 numbers: {shown} ...\n"


def test_several_texts_are_compared(cli: Run, encoder_bundle: MakeBundle) -> None:
    texts = ["the cat sat", "the cat sat on", "paris"]
    result = cli("run", str(encoder_bundle("sentences")), *texts)
    vectors = np.array(load_encoder(encoder_bundle("sentences")).encode(texts))
    lines = result.ok.out.splitlines()
    assert [line.partition("\t")[0] for line in lines[:3]] == texts
    table = [line.split() for line in lines if line.split() and line.split()[0] in "123" and len(line.split()) == 4]
    np.testing.assert_allclose([[float(cell) for cell in row[1:]] for row in table], vectors @ vectors.T, atol=6e-4)


def test_json_has_every_number(cli: Run, encoder_bundle: MakeBundle) -> None:
    for kind, name in (("sentences", "embedding"), ("states", "hidden_states")):
        result = cli("run", str(encoder_bundle(kind)), "the cat", "a dog ran", "--json")
        found = values_of(result.ok.out)
        assert [value["input"] for value in found] == ["the cat", "a dog ran"]
        for value, expected in zip(
            found, load_encoder(encoder_bundle(kind)).encode(["the cat", "a dog ran"]), strict=True
        ):
            np.testing.assert_allclose(value[name], expected, atol=1e-6)


def test_classes_come_with_their_scores(cli: Run, encoder_bundle: MakeBundle) -> None:
    bundle = str(encoder_bundle("classes"))
    lines = cli("run", bundle, "the cat").ok.out.splitlines()
    (value,) = values_of(cli("run", bundle, "the cat", "--json").ok.out)
    assert [line.split("\t") for line in lines] == [[label, f"{s:.4f}"] for label, s in value["scores"].items()]
    assert value["label"] == lines[0].split("\t")[0]
    assert set(value["scores"]) == {"bad", "fair", "good"}


def test_a_tab_parts_two_texts(cli: Run, encoder_bundle: MakeBundle, tmp_path: Path) -> None:
    file = tmp_path / "pairs.txt"
    file.write_text("the cat\ta dog\nno pair\n")
    result = cli("run", str(encoder_bundle("classes")), "the cat\ta dog", "--pairs", "--json")
    (value,), (expected,) = (
        values_of(result.ok.out), load_encoder(encoder_bundle("classes")).classify(("the cat", "a dog"))
    )  # fmt: skip
    assert value["score"] == pytest.approx(expected.score, abs=1e-6)
    result = cli("run", str(encoder_bundle("classes")), "--file", str(file), "--pairs")
    result.refused(f"{file}, line 2: input 'no pair' has no tab between two texts")


def test_tokens_come_with_their_labels(cli: Run, encoder_bundle: MakeBundle) -> None:
    (tokens,) = load_encoder(encoder_bundle("entities")).label_tokens("the cat sat")
    lines = cli("run", str(encoder_bundle("entities")), "the cat sat").ok.out.splitlines()
    assert lines == [f"{token.text}\t{token.label}\t{token.score:.4f}" for token in tokens]


def test_masks_come_with_their_words(cli: Run, encoder_bundle: MakeBundle) -> None:
    bundle, text = str(encoder_bundle("masks")), "the [MASK] sat"
    lines = cli("run", bundle, text, "--top-k", "3").ok.out.splitlines()
    ((mask,),) = load_encoder(bundle).fill_mask(text, 3)
    assert lines == [f"{filling.text}\t{filling.score:.4f}" for filling in mask.fillings]
    (value,) = values_of(cli("run", bundle, text, "--json").ok.out)
    assert len(value["masks"][0]["fillings"]) == 5


def test_an_option_is_for_some_models(cli: Run, encoder_bundle: MakeBundle, tiny_bundle: Path) -> None:
    bundle = str(encoder_bundle("sentences"))
    result = cli("run", bundle, "the cat", "--num-beams", "2", "--stream")
    result.refused("--num-beams, --stream are for models that generate, which this is none of")
    cli("run", bundle, "the", "--top-k", "2").refused("--top-k is for heads that fill masks")
    cli("run", str(tiny_bundle), "hello", "--pairs").refused("--pairs is for encoders")


def test_what_is_too_long_is_told_or_cut(cli: Run, encoder_bundle: MakeBundle) -> None:
    bundle, text = str(encoder_bundle("sentences")), "the cat " * 20
    cli("run", bundle, text).refused("the model takes 24")
    assert cli("run", bundle, text, "--truncate").ok.out.startswith("32 numbers: ")


def test_inspect_names_the_head(cli: Run, encoder_bundle: MakeBundle) -> None:
    assert "sequence-classes, 3 numbers: bad, fair, good" in cli("inspect", str(encoder_bundle("classes"))).ok.out
    value = json.loads(cli("inspect", str(encoder_bundle("masks")), "--json").ok.out)
    assert (value["kind"], value["encoder"]["head"], value["golden_samples"]) == ("encoder", "masked-tokens", 12)


def test_verify_compares_with_the_samples_and_the_checkpoint(
    cli: Run, encoder_bundle: MakeBundle, encoder_checkpoint: MakeBundle, tmp_path: Path
) -> None:
    bundle, checkpoint = encoder_bundle("sentences"), str(encoder_checkpoint("sentences"))
    value = json.loads(cli("verify", str(bundle), "--checkpoint", checkpoint, "--json").ok.out)
    assert value["passed"] is True
    assert [result["against"] for result in value["results"]] == ["samples", "checkpoint"]
    damaged = tmp_path / "bundle"
    shutil.copytree(bundle, damaged)
    manifest = json.loads((damaged / "bundle.json").read_text())
    manifest["encoder"]["samples"][3]["values"][0][0] += 0.5
    (damaged / "bundle.json").write_text(json.dumps(manifest))
    cli("verify", str(damaged)).refused("1 of 2 checks failed")
