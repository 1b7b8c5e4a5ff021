from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from precision_quality import LanguageQuality, Told, compare_embeddings, main


def told(*probabilities: list[float], next_ids: list[int]) -> Told:
    return Told(np.log(np.array(probabilities, np.float32)), np.array(next_ids))


def test_figures_are_means_over_the_tokens_of_all_texts() -> None:
    reference = told([0.5, 0.5], [0.75, 0.25], next_ids=[0, 1])
    quality = LanguageQuality()
    quality.add(told([0.5, 0.5], [0.25, 0.75], next_ids=[0, 1]), reference)
    quality.add(reference, reference)
    figures = quality.figures()
    assert (figures["tokens"], figures["same_next_token_percent"]) == (4, 75.0)
    assert figures["perplexity"] == pytest.approx((0.5 * 0.75 * 0.5 * 0.25) ** (-1 / 4))
    assert figures["divergence_nats"] == pytest.approx((0.75 * np.log(3) + 0.25 * np.log(1 / 3)) / 4)


def test_embeddings_are_compared_by_direction_and_by_their_neighbours() -> None:
    reference = np.array([[1, 0], [0.9, 0.1], [0, 1]], np.float32)
    assert compare_embeddings(3 * reference, reference) == {
        "texts": 3, "least_cosine": pytest.approx(1), "mean_cosine": pytest.approx(1), "same_nearest_percent": 100.0,
    }  # fmt: skip
    turned = compare_embeddings(np.array([[1, 0], [0.1, 0.9], [0, 1]], np.float32), reference)
    assert turned["same_nearest_percent"] == pytest.approx(200 / 3)
    assert turned["least_cosine"] == pytest.approx(0.18 / 0.82)


@pytest.mark.parametrize("kind", ["generates", "reads"])
def test_every_artifact_of_a_bundle_is_measured(
    kind: str, tiny_bundle: Path, encoder_bundle: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tiny_bundle if kind == "generates" else encoder_bundle("sentences")  # type: ignore[operator]
    (tmp_path / "texts.txt").write_text("cat\ndog\nhouse\n")
    reference = "ort-cpu-fp32" if kind == "generates" else "onnx"
    main([str(bundle), "--texts", str(tmp_path / "texts.txt"), "--reference", reference])
    shown = capsys.readouterr().out
    assert reference in shown
    assert ("ort-cpu-int8" in shown) == (kind == "generates")
    assert ("perplexity" in shown) == (kind == "generates")
    assert ("least_cosine" in shown) == (kind == "reads")


def test_an_artifact_that_is_not_there_is_named(tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("cat\ndog\n")
    with pytest.raises(SystemExit, match="has no artifact ort-cpu-int2: it has onnx, ort-cpu-fp32"):
        main([str(tiny_bundle), "--texts", str(tmp_path / "texts.txt"), "--reference", "ort-cpu-int2"])
