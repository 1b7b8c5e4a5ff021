"""WordPiece vocabularies and byte-level merges as tokenizers of the `tokenizers` library."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from edgeformer.exporter.tokenizers.finishing import Around, finish, plain
from edgeformer.exporter.tokenizers.special_tokens import SpecialTokens, read_object
from edgeformer.runtime.errors import CheckpointError

# Where Qwen2 parts words: contractions, words with one sign in front, single digits, signs, line ends, spaces.
QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def wordpiece(folder: Path, special: SpecialTokens) -> dict[str, Tokenizer]:
    """BERT, DistilBERT: one piece a line, `##` before those that go on with a word."""
    config, unknown = special.config, special.content("unk_token", "[UNK]")
    if not config.get("do_basic_tokenize", True) or config.get("never_split"):
        raise CheckpointError(
            f"checkpoint {folder}", ["tokenizer_config.json has do_basic_tokenize or never_split: not supported"]
        )
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    tokens = lines[:-1] if lines[-1] == "" else lines
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"),
        lowercase=config.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    begin, end = special.content("cls_token", "[CLS]"), special.content("sep_token", "[SEP]")
    named = [special.content("pad_token", "[PAD]"), unknown, begin, end, special.content("mask_token", "[MASK]")]
    finish(folder, tokenizer, special, plain(named), ([begin], [end]))
    return {"tokenizer.json": tokenizer}


def byte_level(folder: Path, special: SpecialTokens) -> dict[str, Tokenizer]:
    """GPT-2, RoBERTa, BART, Qwen2: merges of bytes, each byte written as a printable character."""
    try:
        vocab, merges = models.BPE.read_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    except Exception as error:  # tokenizers raises plain Exception
        raise CheckpointError(
            f"checkpoint {folder}", [f"vocab.json and merges.txt are no byte-level vocabulary: {error}"]
        ) from error
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, fuse_unk=False))
    spaced = bool(special.config.get("add_prefix_space", False))
    tokenizer.decoder = decoders.ByteLevel()
    family = byte_level_family(folder, special)
    if family == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
        words = pre_tokenizers.Split(Regex(QWEN2_WORDS), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(spaced, use_regex=False)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    named, around = roberta_tokens(special) if family == "roberta" else gpt2_tokens(special)
    finish(folder, tokenizer, special, named, around)
    return {"tokenizer.json": tokenizer}


def roberta_tokens(special: SpecialTokens) -> tuple[dict[str, AddedToken], Around]:
    """A mask stands for a word with the space before it."""
    begin, end = special.content("cls_token", "<s>"), special.content("sep_token", "</s>")
    mask = special.content("mask_token", "<mask>")
    named = plain([begin, special.content("pad_token", "<pad>"), end, special.content("unk_token", "<unk>")])
    return {**named, mask: AddedToken(mask, lstrip=True, special=True, normalized=False)}, ([begin], [end])


def gpt2_tokens(special: SpecialTokens) -> tuple[dict[str, AddedToken], Around]:
    end = special.content("eos_token", "<|endoftext|>")
    begin = special.content("bos_token", end)
    before = [begin] if special.config.get("add_bos_token", False) else []
    behind = [end] if special.config.get("add_eos_token", False) else []
    return plain([begin, end]), (before, behind)


def byte_level_family(folder: Path, special: SpecialTokens) -> str:
    """`gpt2`, `roberta` or `qwen2`: told by the tokenizer's class, else by the model's type."""
    named = str(special.config.get("tokenizer_class") or read_object(folder / "config.json").get("model_type", ""))
    family = named.lower()
    if family.startswith(("roberta", "bart", "xlm-roberta", "longformer")):
        return "roberta"
    return "qwen2" if family.startswith("qwen") else "gpt2"
