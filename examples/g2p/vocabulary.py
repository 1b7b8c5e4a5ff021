"""The ids of letters and phonemes, as two tokenizers over one vocabulary."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

SPECIAL = ["<pad>", "<s>", "</s>"]


def build_tokenizers(letters: Iterable[str], phonemes: Iterable[str]) -> tuple[Tokenizer, Tokenizer]:
    """A tokenizer that spells words (`Hello` -> h e l l o </s>) and one that reads phonemes (`HH AH L OW`).

    Neither has an unknown token: a character that the model never saw is an error, not a guess.
    """
    letters, phonemes = sorted(letters), sorted(phonemes)
    ids = {token: i for i, token in enumerate([*SPECIAL, *letters, *phonemes])}
    source = Tokenizer(models.WordLevel({token: ids[token] for token in [*SPECIAL, *letters]}))
    source.normalizer = normalizers.Sequence([normalizers.Replace("\u2019", "'"), normalizers.Lowercase()])
    source.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    source.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", ids["</s>"])])
    source.decoder = decoders.Fuse()
    target = Tokenizer(models.WordLevel({token: ids[token] for token in [*SPECIAL, *phonemes]}))
    target.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    for tokenizer in (source, target):
        tokenizer.add_special_tokens(SPECIAL)
    return source, target


def save_tokenizers(folder: Path, source: Tokenizer, target: Tokenizer) -> None:
    """Write both beside a checkpoint, under the names that the exporter looks for."""
    source.save(str(folder / "tokenizer.json"))
    target.save(str(folder / "target_tokenizer.json"))
