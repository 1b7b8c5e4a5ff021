"""The program that takes every family the whole road: what it covers, what it calls good, and its table."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from edgeformer.models.families import FAMILIES

transformers = pytest.importorskip("transformers")

from families import DOCS, Row, table, write_docs  # noqa: E402  # needs transformers
from tiny_checkpoints import VARIATIONS  # noqa: E402

LLAMA = Row("LLaMA", {"fp32": 1.2e-6, "int8": 0.01, "int4": 0.2}, {"greedy": True, "beam 4": True}, 2, 2)
BERT = Row("BERT", {"fp32": 2e-6, "int8": 0.02, "int4": 0.3})
FAILED = Row("T5", problem="ParityError: one\nand more")


def test_every_family_is_taken_along() -> None:
    """Of those that share all of their code, one is enough."""
    taken = {getattr(transformers, f"{v.model}Config").model_type for v in VARIATIONS.values() if v.model}
    kinds = {FAMILIES[model_type].model for model_type in taken}
    assert {family.model for family in FAMILIES.values()} - kinds == {"transformer:Transformer"}  # the example
    assert {"marian", "bart", "mbart", "t5", "mt5", "gpt2", "llama", "mistral", "qwen2", "qwen3"} <= taken


def test_the_page_names_every_family() -> None:
    page = DOCS.read_text(encoding="utf-8")
    assert [model_type for model_type in FAMILIES if f"`{model_type}`" not in page] == []


def test_good_is_what_equals_transformers_in_fp32() -> None:
    assert LLAMA.good
    assert BERT.good
    assert not FAILED.good
    assert not dataclasses.replace(LLAMA, searches={"greedy": True, "beam 4": False}).good
    assert not dataclasses.replace(LLAMA, differences=LLAMA.differences | {"fp32": 6e-5}).good
    assert not dataclasses.replace(LLAMA, differences=LLAMA.differences | {"fp32": float("nan")}).good


def test_the_table_says_what_came_of_each() -> None:
    lines = table([LLAMA, BERT, FAILED]).splitlines()
    assert lines[2] == "| LLaMA | 1.2e-06 | greedy equal, beam 4 equal | 1.0e-02 | 2.0e-01 | 2 of 2 |"
    assert lines[3] == "| BERT | 2.0e-06 | does not write | 2.0e-02 | 3.0e-01 | not built |"
    assert lines[4].startswith("| T5 | failed: ParityError: one |")
    assert len({line.count("|") for line in lines}) == 1


def test_only_the_table_of_the_page_is_written_anew(tmp_path: Path) -> None:
    page = tmp_path / "families.md"
    page.write_text("before\n\n<!-- table -->\n<!-- end of table -->\nafter\n", encoding="utf-8")
    for rows in ([BERT], [LLAMA]):
        write_docs(page, rows)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n\n<!-- table -->\n\n| family |")
    assert text.endswith("|\n\n<!-- end of table -->\nafter\n")
    assert "LLaMA" in text
    assert "BERT" not in text
