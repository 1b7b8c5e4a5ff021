"""Small tokenizers of every kind, trained on what the repository has, and a page of awkward strings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]

SCRIPTS = [
    "日本語のテキスト、カタカナとひらがな。",
    "Привет, мир! Это короткий текст.",
    "مرحبا بالعالم هذا نص قصير",
    "שלום עולם זה טקסט קצר",
    "한국어 문장도 조금 있습니다.",
    "Ça va très bien, où êtes-vous? El niño comió piñas. Größe und Übermut",
]

AWKWARD = [
    "", " ", "   ", "a", " a", "a ", "  a  b  ", "Hello world", "Hello, World! It's 'quoted' \"text\".",
    "\n", "a\nb", "\ta\t\tb\n\n", "\r\n", "a\r\nb", "\x0b\x0c", "\u2028\u2029\x85",
    "a\u00a0b", "\u00a0a", "a\u3000b", "\u200b", "a\u200bb", "a\u200cb", "a\u200db", "\u2060\ufeffbom", "a\u00adb",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 family", "\U0001f44d\U0001f3fd",
    "\u2764\ufe0f 1\ufe0f\u20e3 \u00b2\ufe0f",
    "\U0001f1e9\U0001f1ea flag", "e\u0301 a\u0323\u0302 n\u0303 \u00f1", "e" + "\u0301" * 6, "\u0301 alone",
    "\u304b\u3099\u304d \uff76\uff9e\uff77\uff9e", "\u1112\u1161\u11ab \ud55c", "\ufb01nd", "\uff21\u0301\uff22\uff23",
    "שלום עולם", "مرحبا 123", "mixed עברית and العربية", "日本語のテキスト", "日本 日本", "Привет МИР",
    "a\x00b", "a\x01b\x7fc", "\ufffd", "\x1b[31m",
    "x" * 300, "pneumono" * 30, "word" * 400, "aaaaa ==== .... ##",
    "12345 3.14 1,000 ½ ⅷ ①", "Mixed CASE tEXT", "\u0130 \u0131 ß ẞ ǅ Σς",
    "☃ \U0001d518\U0001d52b", "_a__b_ \u2581a\u2581\u2581b\u2581",
    "\u00a8 a\u00b4", "℃ … ™", "def f(x):\n    return x  # two  spaces\n\n\n", "https://example.org/?q=a%20b&c=d",
]  # fmt: skip

LLAMA: dict[str, Any] = {
    "vocab_size": 1100, "model_type": "bpe", "byte_fallback": True, "character_coverage": 0.99, "split_digits": True,
    "normalization_rule_name": "identity", "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True,
}  # fmt: skip


@pytest.fixture(scope="session")
def corpus() -> list[str]:
    """A text that does not change, in small letters and capitals, and some of other scripts."""
    lines = [line.strip() for line in (ROOT / "LICENSE").read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line]
    return [*lines, *(line.upper() for line in lines[::2]), *(line.title() for line in lines[1::2]), *SCRIPTS * 3]


@pytest.fixture(scope="session")
def train(corpus: list[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A SentencePiece model file; trained once for each set of options."""
    sentencepiece = pytest.importorskip("sentencepiece")
    folder, made = tmp_path_factory.mktemp("sentencepiece"), dict[str, Path]()

    def train(**options: Any) -> Path:
        key = repr(sorted(options.items()))
        if key not in made:
            prefix = folder / str(len(made))
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(corpus), model_prefix=str(prefix), minloglevel=2, **options
            )
            made[key] = prefix.with_suffix(".model")
        return made[key]

    return train


@pytest.fixture(scope="session")
def page(corpus: list[str]) -> list[str]:
    """Awkward strings, and some that are not."""
    return [*AWKWARD, *corpus[::8], *SCRIPTS]


def write_json(folder: Path, **contents: Any) -> None:
    """One JSON file for each name, `config` as config.json."""
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
