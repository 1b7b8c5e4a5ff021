"""`edgeformer run`."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.runtime import GenerationConfig, Model, load
from edgeformer.runtime.sampling import input_seeds

WORDS = ["abc", "hello", "zz", "q", "wxyz", "Edge", "banana"]


@pytest.fixture(scope="module")
def model(tiny_bundle: Path) -> Model:
    return load(tiny_bundle)


def texts(model: Model, words: list[str] = WORDS, **options: Any) -> list[str]:
    return [generation.text for generation in model.generate(words, GenerationConfig(**options))]


def lines(*words: str) -> bytes:
    return "".join(f"{word}\n" for word in words).encode()


# What is printed


def test_what_runs_and_why_nothing_else_is_told_on_demand(
    cli: Callable[..., Any], bundle: Path, edit: Callable[..., None]
) -> None:
    edit(lambda manifest: manifest["artifacts"][1].update(needs={"onnxruntime": "999.0"}))
    result = cli("run", "-v", bundle, "hello").ok
    lines = result.err.splitlines()
    assert lines[0] == "runs ort-cpu-int8"
    assert lines[1].startswith("  not ort-cpu-fp32: it needs onnxruntime 999.0, ")
    assert lines[2] == "  not onnx: ort-cpu-int8 comes before it"
    assert len(result.out.splitlines()) == 1


def test_one_text_gives_its_result_alone(cli: Callable[..., Any], tiny_bundle: Path, model: Model) -> None:
    result = cli("run", tiny_bundle, "hello").ok
    assert (result.out, result.err) == (f"{texts(model, ['hello'])[0]}\n", "")
    assert len(result.out.split()) > 1


def test_several_texts_give_a_line_each(cli: Callable[..., Any], tiny_bundle: Path, model: Model) -> None:
    expected = [f"{word}\t{text}" for word, text in zip(WORDS, texts(model), strict=True)]
    assert cli("run", tiny_bundle, *WORDS).ok.out.splitlines() == expected
    assert len(set(expected)) == len(WORDS)


@pytest.mark.parametrize("way", ["--file", "--file -", "-", "nothing"])
def test_files_and_standard_input_give_the_same_lines(
    cli: Callable[..., Any], tiny_bundle: Path, tmp_path: Path, way: str
) -> None:
    expected = cli("run", tiny_bundle, *WORDS).ok.out
    path = tmp_path / "words.txt"
    path.write_bytes(lines(*WORDS))
    arguments = {"--file": ["--file", path], "--file -": ["--file", "-"], "-": ["-"], "nothing": []}[way]
    stdin = b"" if way == "--file" else lines(*WORDS)
    assert cli("run", tiny_bundle, *arguments, stdin=stdin).ok.out == expected


def test_one_line_of_a_file_keeps_its_input_beside_it(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    assert cli("run", tiny_bundle, stdin=b"hello").ok.out.startswith("hello\t")


def test_windows_files_are_read_as_they_are_meant(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    expected = cli("run", tiny_bundle, "abc", "hello").ok.out
    assert cli("run", tiny_bundle, stdin=b"\xef\xbb\xbfabc\r\nhello\r\n").ok.out == expected


def test_json_is_a_line_for_each_input(cli: Callable[..., Any], tiny_bundle: Path, model: Model) -> None:
    found = [json.loads(line) for line in cli("run", tiny_bundle, *WORDS, "--json").ok.out.splitlines()]
    for word, row, generation in zip(WORDS, found, model.generate(WORDS), strict=True):
        assert set(row) == {"input", "text", "score", "token_ids", "finish_reason"}
        assert (row["input"], row["text"]) == (word, generation.text)
        assert row["token_ids"] == list(generation.token_ids)
        assert row["score"] == pytest.approx(generation.score, abs=1e-5)
        assert row["finish_reason"] == generation.finish_reason


def test_the_n_best_have_scores(cli: Callable[..., Any], tiny_bundle: Path, model: Model) -> None:
    best = model.generate(["hello"], GenerationConfig(num_beams=3, num_return_sequences=3))[0].hypotheses
    beams = ("--num-beams", 3, "--num-return-sequences", 3)
    rows = [line.split("\t") for line in cli("run", tiny_bundle, "hello", *beams).ok.out.splitlines()]
    assert [row[:2] for row in rows] == [["hello", hypothesis.text] for hypothesis in best]
    assert [float(row[2]) for row in rows] == pytest.approx([hypothesis.score for hypothesis in best], abs=1e-3)
    found = json.loads(cli("run", tiny_bundle, "hello", *beams, "--json").ok.out)
    assert [hypothesis["text"] for hypothesis in found["hypotheses"]] == [hypothesis.text for hypothesis in best]
    assert found["text"] == best[0].text


@pytest.mark.parametrize("words", [["hello"], WORDS], ids=["one", "several"])
def test_streaming_prints_the_same(cli: Callable[..., Any], tiny_bundle: Path, words: list[str]) -> None:
    assert cli("run", tiny_bundle, *words, "--stream").ok.out == cli("run", tiny_bundle, *words).ok.out


# Options


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("--num-beams", 4), {"num_beams": 4}),
        (("--num-beams", 4, "--length-penalty", -3), {"num_beams": 4, "length_penalty": -3.0}),
        (("--num-beams", 2, "--early-stopping", "never"), {"num_beams": 2, "early_stopping": "never"}),
        (("--num-beams", 2, "--early-stopping", "true"), {"num_beams": 2, "early_stopping": True}),
        (("--max-new-tokens", 2), {"max_new_tokens": 2}),
        (("--stop", "L", "--stop", "AH"), {"stop_strings": ["L", "AH"]}),
        (("--min-new-tokens", 9), {"min_new_tokens": 9}),
        (("--repetition-penalty", 1.5), {"repetition_penalty": 1.5}),
        (("--no-repeat-ngram-size", 2), {"no_repeat_ngram_size": 2}),
        (("--prompt-lookup-num-tokens", 5), {"prompt_lookup_num_tokens": 5}),
        (("--do-sample",), {"do_sample": True}),
        (("--no-do-sample",), {}),
        (
            ("--do-sample", "--temperature", 0.5, "--top-k", 3, "--top-p", 0.5, "--min-p", 0.25),
            {"do_sample": True, "temperature": 0.5, "top_k": 3, "top_p": 0.5, "min_p": 0.25},
        ),
        (("--do-sample", "--seed", 4), {"do_sample": True, "seed": input_seeds(4, len(WORDS))}),
    ],
    ids=str,
)
def test_every_option_reaches_the_search(
    cli: Callable[..., Any], tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...],
    options: dict[str, Any],
) -> None:  # fmt: skip
    asked: list[GenerationConfig | None] = []
    generate = Model.generate

    def watched(self: Model, inputs: Any, config: GenerationConfig | None = None, **more: Any) -> Any:
        asked.append(config)
        return generate(self, inputs, config, **more)

    monkeypatch.setattr(Model, "generate", watched)
    assert cli("run", tiny_bundle, *WORDS, *arguments).ok
    assert asked == [GenerationConfig(**options)]


def test_a_seed_gives_the_same_lines_in_any_batch_and_streamed(
    cli: Callable[..., Any], tiny_bundle: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled = ("--do-sample", "--seed", 3, "--max-new-tokens", 8)
    expected = cli("run", tiny_bundle, *WORDS, *sampled).ok.out
    drawn = texts(model, do_sample=True, seed=3, max_new_tokens=8)
    assert expected.splitlines() == [f"{word}\t{text}" for word, text in zip(WORDS, drawn, strict=True)]
    assert cli("run", tiny_bundle, *WORDS, *sampled, "--stream").ok.out == expected
    monkeypatch.setattr("edgeformer.cli.run.BATCHES", 1)  # lines come in parts
    assert cli("run", tiny_bundle, *WORDS, *sampled, "--batch-size", 2).ok.out == expected
    assert cli("run", tiny_bundle, *WORDS, *sampled, "--seed", 4).ok.out != expected


def test_options_of_sampling_alone_are_refused(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    message = "--temperature=0.5, --seed=1 would change nothing: set --do-sample as well"
    cli("run", tiny_bundle, "hello", "--temperature", 0.5, "--seed", 1).refused(message)


def test_the_artifact_can_be_chosen(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    found = json.loads(cli("run", tiny_bundle, "banana", "--artifact", "ort-cpu-int8", "--json").ok.out)
    (expected,) = load(tiny_bundle, "ort-cpu-int8").generate("banana")
    assert found["score"] == pytest.approx(expected.score, abs=1e-6)
    assert found["score"] != load(tiny_bundle).generate("banana")[0].score


def test_options_that_are_not_given_are_the_checkpoints_own(
    cli: Callable[..., Any], bundle: Path, edit: Callable[[Callable[[Any], None]], None], model: Model
) -> None:
    content = b'{"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 5}'
    (bundle / "generation_config.json").write_bytes(content)
    record = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    edit(lambda values: values["files"].update({"generation_config.json": record}))
    rows = [line.split("\t") for line in cli("run", bundle, "hello", "--max-new-tokens", 3).ok.out.splitlines()]
    (best,) = model.generate("hello", GenerationConfig(num_beams=3, num_return_sequences=2, max_new_tokens=3))
    assert [row[1] for row in rows] == [hypothesis.text for hypothesis in best.hypotheses]


def test_batches_and_threads_change_no_result(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    expected = cli("run", tiny_bundle, *WORDS).ok.out
    assert cli("run", tiny_bundle, *WORDS, "--batch-size", 2, "--threads", 1).ok.out == expected


# Long files


def test_a_long_file_keeps_its_order(cli: Callable[..., Any], tiny_bundle: Path, model: Model) -> None:
    words = ["".join(letters) for letters in itertools.product("abcde", repeat=2)] * 2
    out = cli("run", tiny_bundle, "--batch-size", 2, stdin=lines(*words)).ok.out
    assert [line.split("\t") for line in out.splitlines()] == [
        list(p) for p in zip(words, texts(model, words), strict=True)
    ]


def test_results_are_written_before_the_file_is_read_to_its_end(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    result = cli("run", tiny_bundle, "--batch-size", 1, stdin=lines(*["abc"] * 40, "a1"))
    result.refused("standard input, line 41", "'1' at 1")
    assert len(result.out.splitlines()) == 32


# Bad input


def test_an_unknown_character_is_named(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    cli("run", tiny_bundle, "na\N{LATIN SMALL LETTER I WITH DIAERESIS}ve").refused("'\xef' at 2", "known: ' a b c")


def test_an_unknown_character_of_a_file_is_named_with_its_line(
    cli: Callable[..., Any], tiny_bundle: Path, tmp_path: Path
) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(lines("abc", "d3f", "4"))
    assert cli("run", tiny_bundle, "--file", path).refused("'3' at 1").startswith(f"error: {path}, line 2: ")


@pytest.mark.parametrize("word", ["", " "], ids=repr)
def test_an_empty_word_is_refused(cli: Callable[..., Any], tiny_bundle: Path, word: str) -> None:
    result = cli("run", tiny_bundle, word)
    result.refused("an input is empty", "give at least one character")
    assert result.out == ""


def test_an_empty_line_is_refused_with_its_number(cli: Callable[..., Any], tiny_bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(lines("abc", "", "def"))
    cli("run", tiny_bundle, "--file", path).refused(f"{path}, line 2: an input is empty")


def test_a_word_longer_than_the_positions_is_refused(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    assert cli("run", tiny_bundle, "a" * 31).ok
    cli("run", tiny_bundle, "a" * 32).refused("is 33 tokens long, the model has 32 positions: shorten it")


@pytest.mark.parametrize("stream", [[], ["--stream"]], ids=["", "stream"])
def test_no_inputs_are_refused(cli: Callable[..., Any], tiny_bundle: Path, stream: list[str]) -> None:
    cli("run", tiny_bundle, *stream, stdin=b"").refused("there are no inputs")


def test_a_terminal_is_not_waited_for(
    cli: Callable[..., Any], tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("io.TextIOWrapper", Terminal)
    cli("run", tiny_bundle).refused("there are no inputs: give texts, a file, or lines on standard input")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"abc\n\xff\n", "line 2: it is not UTF-8 (byte 0xff at 0)"),
        ("folder", "Is a directory"),
    ],
    ids=["missing", "not UTF-8", "a folder"],
)
def test_a_file_that_cannot_be_read_is_named(
    cli: Callable[..., Any], tiny_bundle: Path, tmp_path: Path, content: bytes | str | None, reason: str
) -> None:
    path = tmp_path / "words.txt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        path.mkdir()
    cli("run", tiny_bundle, "--file", path).refused(str(path), reason)


def test_an_argument_that_is_not_utf8_is_refused(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    cli("run", tiny_bundle, "a\udcff").refused("is not UTF-8")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--num-beams", 0), "--num-beams is 0, expected a whole number of at least 1"),
        (("--num-beams", 99), "--num-beams is 99, the vocabulary has 69 tokens"),
        (("--num-return-sequences", 2), "raise --num-beams"),
        (("--early-stopping", "maybe"), "--early-stopping is 'maybe'"),
        (("--length-penalty", "nan"), "--length-penalty is nan"),
        (("--max-new-tokens", 33), "--max-new-tokens is 33, the model has 32 positions"),
        (("--batch-size", 0), "--batch-size is 0, expected at least 1"),
        (("--threads", 0), "threads is 0, expected at least 1"),
        (("--artifact", "tensorrt"), "has no artifact 'tensorrt'; it has: onnx, ort-cpu-fp32, ort-cpu-int8"),
        (("--stream", "--num-beams", 2), "only greedy search can stream, set --num-beams to 1"),
        (("--temperature", 0.5), "--temperature=0.5 would change nothing: set --do-sample as well"),
        (("--stop", "E", "--num-beams", 2), "--stop is ['E'], and only greedy search and sampling look for them"),
    ],
    ids=str,
)
def test_an_option_out_of_range_is_refused(
    cli: Callable[..., Any], tiny_bundle: Path, arguments: tuple[object, ...], reason: str
) -> None:
    result = cli("run", tiny_bundle, "hello", *arguments)
    result.refused(reason)
    assert result.out == ""


@pytest.mark.parametrize(
    "arguments",
    [("--num-beams", "many"), ("--length-penalty", "long"), ("--stream", "--json"), ("--file", "words.txt")],
    ids=str,
)
def test_options_that_make_no_sense_exit_with_2(
    cli: Callable[..., Any], tiny_bundle: Path, arguments: tuple[str, ...]
) -> None:
    result = cli("run", tiny_bundle, "hello", *arguments)
    assert (result.code, result.out) == (2, "")
    assert "Error:" in result.err


def test_wrong_hashes_are_all_named(cli: Callable[..., Any], bundle: Path) -> None:
    for name in ("tokenizer.json", "ort-cpu-fp32/weights.data", "ort-cpu-fp32/encoder.onnx"):
        content = bytearray((bundle / name).read_bytes())
        content[len(content) // 2] ^= 1
        (bundle / name).write_bytes(content)
    message = cli("run", bundle, "hello").refused("tokenizer.json", "weights.data", "encoder.onnx")
    assert message.count("has another SHA-256 than bundle.json records") == 3
    assert cli("run", bundle, "hello", "--artifact", "ort-cpu-int8").refused("tokenizer.json").count("SHA-256") == 1


def test_a_missing_bundle_is_refused(cli: Callable[..., Any], tmp_path: Path) -> None:
    cli("run", tmp_path / "nowhere", "word").refused("there is no such folder")


def test_a_backend_that_is_not_installed_is_named(
    cli: Callable[..., Any], bundle: Path, edit: Callable[[Callable[[Any], None]], None]
) -> None:
    def elsewhere(values: Any) -> None:
        for artifact in values["artifacts"]:
            artifact["backend"] = "warp"

    edit(elsewhere)
    cli("run", bundle, "hello").refused("nothing in bundle", "ort-cpu-int8: no backend 'warp' is installed")
    cli("run", bundle, "hello", "--artifact", "onnx").refused("no backend 'warp' is installed")
