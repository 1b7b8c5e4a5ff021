"""The trained example keeps, in a bundle, what it says in PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

CHECKPOINT = Path(__file__).parents[1] / "examples" / "g2p" / "checkpoint"
# 64 words, from one letter to twenty; names, loans and inventions among them.
WORDS = """
a I ox to cat the know edge queue rhyme thumb colonel Wednesday rendezvous bureaucracy choir yacht island debris
knight psalm receipt subtle tongue aisle chaos depot epitome facade's hyperbole indict jalapeno karaoke lieutenant
mortgage naive onomatopoeia pneumonia quay rough segue though through thought thorough ukulele vegetable worcestershire
xylophone yolk zucchini blorptastic frindlewick snozzcumber glimmerwhistle quixotic syzygy tchotchke anthropomorphic
counterintuitive internationalization telecommunications don't o'clock
""".split()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from edgeformer.exporter.exporting import export_checkpoint
    from edgeformer.exporter.optimizing import optimize_bundle

    folder = tmp_path_factory.mktemp("g2p") / "bundle"
    export_checkpoint(CHECKPOINT, folder)
    for precision in ("fp32", "int8", "int8-rows"):
        optimize_bundle(folder, "ort-cpu", precision)
    return folder


@pytest.mark.real
@pytest.mark.parametrize("artifact", ["onnx", "ort-cpu-fp32"])
def test_an_artifact_in_full_precision_says_what_pytorch_says(bundle: Path, artifact: str) -> None:
    from edgeformer.exporter import reference
    from edgeformer.models.checkpoint import load_checkpoint
    from edgeformer.runtime import GenerationConfig, load

    torch_model, model = load_checkpoint(CHECKPOINT), load(bundle, artifact)
    sources = model.text.encode_sources(WORDS)
    greedy = [list(result.token_ids) for result in model.generate(WORDS)]
    assert greedy == reference.greedy(torch_model, sources, 40)
    beams = [list(result.token_ids) for result in model.generate(WORDS, GenerationConfig(num_beams=4))]
    assert beams == [reference.beam_search(torch_model, source, 64, 4)[0][0] for source in sources]


@pytest.mark.real
@pytest.mark.parametrize("artifact", ["ort-cpu-fp32", "ort-cpu-int8", "ort-cpu-int8-rows"])
@pytest.mark.parametrize("beams", [1, 4])
def test_a_ragged_batch_of_64_words_says_of_each_what_it_says_of_it_alone(
    bundle: Path, artifact: str, beams: int
) -> None:
    from edgeformer.runtime import GenerationConfig, load

    model, config = load(bundle, artifact), GenerationConfig(num_beams=beams)
    assert len(set(WORDS)) == 64
    together = [result.text for result in model.generate(WORDS, config)]
    assert together == [model.generate(word, config)[0].text for word in WORDS]


@pytest.mark.real
def test_common_words_are_said_right(bundle: Path) -> None:
    from edgeformer.runtime import load

    said = {word: load(bundle).generate(word)[0].text for word in ("cat", "the", "thought", "nationality")}
    assert said == {
        "cat": "K AE T",
        "the": "DH AH",
        "thought": "TH AO T",
        "nationality": "N AE SH AH N AE L AH T IY",
    }
