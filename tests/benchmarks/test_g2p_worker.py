from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgeformer.runtime import GenerationConfig, load

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "g2p_worker.py"


@pytest.fixture
def words_file(words: list[str], tmp_path: Path) -> Path:
    path = tmp_path / "words"
    path.write_text("".join(f"{word}\tAH\n" for word in words), encoding="utf-8")
    return path


def talk(bundle: Path, words_file: Path, lines: list[Any], *options: str) -> subprocess.CompletedProcess[str]:
    """Start a worker, send it these lines, and end its input."""
    command = [sys.executable, str(PROGRAM), str(bundle), "--artifact", "ort-cpu-fp32", "--words", str(words_file)]
    sent = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    return subprocess.run([*command, *options], input=sent, capture_output=True, text=True, check=False)


def test_a_worker_says_what_the_runtime_says(tiny_bundle: Path, words: list[str], words_file: Path) -> None:
    asked = [
        {"batch": batch, "beams": beams, "round": i, "outputs": True}
        for i, (batch, beams) in enumerate([(1, 1), (64, 1), (1, 4), (7, 4)])
    ]
    done = talk(tiny_bundle, words_file, asked, "--max-new-tokens", "16")
    assert (done.returncode, done.stderr) == (0, "")
    hello, *replies = map(json.loads, done.stdout.splitlines())
    assert hello["words"] == len(dict.fromkeys(words))
    assert hello["artifact"] == "ort-cpu-fp32"
    assert hello["search"] == {"max_new_tokens": 16, "length_penalty": 1.0, "early_stopping": True}
    assert hello["load_seconds"] > 0
    assert "onnxruntime" in hello["versions"]
    model = load(tiny_bundle, "ort-cpu-fp32")
    for command, reply in zip(asked, replies, strict=True):
        config = GenerationConfig(max_new_tokens=16, num_beams=command["beams"], early_stopping=True)
        expected = [generation.text for generation in model.generate(list(dict.fromkeys(words)), config)]
        assert reply["outputs"] == expected
        assert (reply["batch"], reply["beams"], reply["round"]) == (
            command["batch"],
            command["beams"],
            command["round"],
        )
        assert 0 < reply["engine_seconds"] <= reply["seconds"]
        assert reply["words_per_second"] * reply["seconds"] == pytest.approx(hello["words"])
        assert reply["peak_rss_mib"] >= hello["peak_rss_mib"]


def test_outputs_come_only_when_asked_for(tiny_bundle: Path, words_file: Path) -> None:
    done = talk(tiny_bundle, words_file, [{"batch": 64, "beams": 1}], "--max-new-tokens", "16")
    assert "outputs" not in json.loads(done.stdout.splitlines()[1])


def test_a_worker_answers_what_it_cannot_do_and_goes_on(tiny_bundle: Path, words_file: Path) -> None:
    wrong = ["{", "[]", {"batch": 0, "beams": 1}, {"batch": "1", "beams": 1}, {"batch": 64, "beams": 10_000}]
    done = talk(tiny_bundle, words_file, [*wrong, {"batch": 64, "beams": 1}], "--max-new-tokens", "16")
    assert done.returncode == 0
    _, *replies = map(json.loads, done.stdout.splitlines())
    assert [set(reply) == {"error"} for reply in replies] == [True] * 5 + [False]
    assert "num_beams is 10000" in replies[4]["error"]


@pytest.mark.parametrize(
    ("content", "message"), [("", "no words"), ("ok\nqu3\n", "'3'"), ("a" * 40 + "\n", "41 tokens long")]
)
def test_words_that_no_round_could_say_are_refused_at_once(
    tiny_bundle: Path, tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "words"
    path.write_text(content, encoding="utf-8")
    done = talk(tiny_bundle, path, [])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr


def test_an_artifact_that_is_not_there_is_refused(tiny_bundle: Path, words_file: Path) -> None:
    done = talk(tiny_bundle, words_file, [], "--artifact", "none")
    assert done.returncode == 1
    assert "has no artifact 'none'" in done.stderr
