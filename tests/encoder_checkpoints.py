"""Tiny checkpoints of encoders, with tokenizers, as Hugging Face's libraries save them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

# What sets an encoder's kind apart: the class, and how its configuration differs.
ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sentences": ("BertModel", {}),
    "states": ("DistilBertModel", {}),
    "classes": ("BertForSequenceClassification", {"id2label": {0: "bad", 1: "fair", 2: "good"}}),
    "topics": (
        "RobertaForSequenceClassification",
        {"id2label": {0: "war", 1: "peace"}, "problem_type": "multi_label_classification"},
    ),
    "entities": ("DistilBertForTokenClassification", {"id2label": {0: "O", 1: "PER", 2: "LOC"}}),
    "masks": ("BertForMaskedLM", {}),
    "byte masks": ("RobertaForMaskedLM", {}),
}
WORDS = "the a cat dog sat ran on in mat house big small red and was it of man ate food . , ! paris café".split()
LONGEST = 40
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": LONGEST, "type_vocab_size": 2,
}  # fmt: skip
DISTILBERT_SIZES = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": LONGEST}


def word_pieces() -> Tokenizer:
    """As BERT's; its file asks for padding and cutting, as many do."""
    letters = sorted({*"".join(WORDS), *"abcdefghijklmnopqrstuvwxyz"})
    vocabulary = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters])
    vocabulary |= dict.fromkeys(f"##{letter}" for letter in letters)
    tokenizer = Tokenizer(models.WordPiece({t: i for i, t in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.enable_padding(length=12, pad_token="[PAD]")
    tokenizer.enable_truncation(12)
    return tokenizer


def byte_pieces() -> Tokenizer:
    """As RoBERTa's: its mask takes the space before it along."""
    letters = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    words = [f"Ġ{word}" for word in WORDS if word.isascii() and word.isalpha()]
    pieces = dict.fromkeys([*special, *sorted(letters)])
    merges = []
    for word in words:
        for end in range(2, len(word) + 1):
            pieces[word[:end]] = None
            merges.append((word[: end - 1], word[end - 1]))
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(pieces)}, list(dict.fromkeys(merges))))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    tokenizer.add_special_tokens([*special[:4], AddedToken("<mask>", lstrip=True)])
    return tokenizer


def make_encoder_checkpoint(folder: Path, kind: str) -> None:
    """Write a random encoder of one of `ENCODERS` and its tokenizer: always the same weights."""
    import torch
    import transformers

    name, changes = ENCODERS[kind]
    family = name.partition("Model")[0].partition("For")[0]
    of_bytes = family == "Roberta"
    tokenizer = byte_pieces() if of_bytes else word_pieces()
    config = getattr(transformers, f"{family}Config")(
        vocab_size=tokenizer.get_vocab_size(), **(DISTILBERT_SIZES if family == "DistilBert" else SIZES), **changes
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, name)(config).eval()
        for parameter in model.parameters():
            parameter.data += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    names = ("<s>", "<pad>", "</s>", "<unk>", "<mask>") if of_bytes else ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")
    keys = ("cls_token", "pad_token", "sep_token", "unk_token", "mask_token")
    tokenizer.save(str(folder / "tokenizer.json"))
    inputs = ["input_ids", "attention_mask", *(["token_type_ids"] if family == "Bert" else [])]
    values = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}
    values |= dict(zip(keys, names, strict=True))
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    if kind == "sentences":
        make_sentence_encoder(folder)


def make_sentence_encoder(folder: Path) -> None:
    """What makes a folder one of sentence-transformers: mean pooling, then vectors of length 1."""
    parts = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(parts)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 24, "do_lower_case": False}))
