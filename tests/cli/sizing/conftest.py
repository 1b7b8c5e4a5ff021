"""Checkpoints with a tokenizer, so that bundles can be made of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from edgeformer.exporter.exporting import export_checkpoint


@pytest.fixture
def exported(tmp_path: Path) -> Callable[[Path, int], Path]:
    """The bundle of a checkpoint that has no tokenizer yet, of so many tokens."""

    def export(checkpoint: Path, vocab_size: int) -> Path:
        words = {f"w{i}": i for i in range(vocab_size)}
        tokenizer = Tokenizer(models.WordLevel(words, unk_token="w3"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
        tokenizer.save(str(checkpoint / "tokenizer.json"))
        export_checkpoint(checkpoint, tmp_path / "bundle")
        return tmp_path / "bundle"

    return export
