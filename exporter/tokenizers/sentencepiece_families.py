"""What each family makes of its SentencePiece model: which piece has which id, and which tokens stand around a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from edgeformer.exporter.tokenizers.finishing import Around, finish, plain
from edgeformer.exporter.tokenizers.sentencepiece import Vocabulary, build_tokenizer
from edgeformer.exporter.tokenizers.sentencepiece_model import CONTROL, SentencePieceModel, read_sentencepiece
from edgeformer.exporter.tokenizers.special_tokens import SpecialTokens, read_object
from edgeformer.runtime.errors import CheckpointError

MBART_LANGUAGES = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
).split()
MBART_50_LANGUAGES = (
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN "
    "te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
).split()


def t5(folder: Path, special: SpecialTokens) -> dict[str, Tokenizer]:
    """T5, mT5: the pieces, then as many `<extra_id_N>` as the configuration says, the last one first."""
    model = read_sentencepiece(folder / "spiece.model")
    pieces = [piece.text for piece in model.pieces]
    named = {f"<extra_id_{i}>": i for i in reversed(range(special.config.get("extra_ids", 100)))}
    extra = sorted(named.keys() - set(pieces), key=named.__getitem__, reverse=True)
    end = special.content("eos_token", "</s>")
    roles = [special.content("pad_token", "<pad>"), end, special.content("unk_token", "<unk>")]
    return {"tokenizer.json": build(folder, model, [*pieces, *extra], special, plain([*roles, *extra]), ([], [end]))}


def llama(folder: Path, special: SpecialTokens) -> dict[str, Tokenizer]:
    """LLaMA, Mistral: the pieces; a start token in front unless the configuration says otherwise."""
    model = read_sentencepiece(folder / "tokenizer.model")
    tokens = [special.added[i].content if i in special.added else p.text for i, p in enumerate(model.pieces)]
    roles = [special.content(role, text) for role, text in LLAMA_ROLES.items()]
    control = [tokens[i] for i, piece in enumerate(model.pieces) if piece.kind == CONTROL]
    begin = [special.content("bos_token", "<s>")] if special.config.get("add_bos_token", True) else []
    end = [special.content("eos_token", "</s>")] if special.config.get("add_eos_token", False) else []
    prefixed = "always" if special.config.get("legacy", False) else "first"
    named = plain([*roles, *control])
    return {"tokenizer.json": build(folder, model, tokens, special, named, (begin, end), prefixed)}


LLAMA_ROLES = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


def fairseq(folder: Path, special: SpecialTokens) -> dict[str, Tokenizer]:
    """XLM-RoBERTa and mBART: fairseq's four tokens in place of the model's three, then languages, then the mask."""
    model = read_sentencepiece(folder / "sentencepiece.bpe.model")
    begin, end = special.content("bos_token", "<s>"), special.content("eos_token", "</s>")
    first = [begin, special.content("pad_token", "<pad>"), end, special.content("unk_token", "<unk>")]
    languages, around = [], ([begin], [end])
    if is_mbart(folder, special):
        source = special.config.get("src_lang") or "en_XX"
        many = str(special.config.get("tokenizer_class", "")).startswith("MBart50")
        languages = [*MBART_LANGUAGES, *(MBART_50_LANGUAGES if many else ())]
        around = ([source], [end]) if many else ([], [end, source])
    mask = special.content("mask_token", "<mask>")
    tokens = [*first, *(piece.text for piece in model.pieces[3:]), *languages, mask]
    named = {**plain([*first, *languages]), mask: AddedToken(mask, lstrip=True, special=True, normalized=False)}
    return {"tokenizer.json": build(folder, model, tokens, special, named, around)}


def is_mbart(folder: Path, special: SpecialTokens) -> bool:
    named = str(special.config.get("tokenizer_class", ""))
    return named.startswith("MBart") or (not named and read_object(folder / "config.json").get("model_type") == "mbart")


def marian(folder: Path, special: SpecialTokens) -> dict[str, Tokenizer]:
    """Marian: a model for each side, with the ids of vocab.json, or target_vocab.json for targets with their own."""
    sides = {"tokenizer.json": ("source.spm", "vocab.json"), "target_tokenizer.json": ("target.spm", "vocab.json")}
    if special.config.get("separate_vocabs"):
        sides["target_tokenizer.json"] = ("target.spm", "target_vocab.json")
    return {name: marian_side(folder, special, *files) for name, files in sides.items()}


def marian_side(folder: Path, special: SpecialTokens, pieces: str, ids: str) -> Tokenizer:
    """One side's tokenizer.

    A piece without id is spelled in smaller ones, where Marian has one unknown token; a character that is a piece of
    the other side alone is unknown here.
    """
    model = read_sentencepiece(folder / pieces)
    tokens = tokens_by_id(folder, ids)
    end, unknown = special.content("eos_token", "</s>"), special.content("unk_token", "<unk>")
    languages = [token for token in tokens if token.startswith(">>") and token.endswith("<<")]
    named = plain([end, unknown, special.content("pad_token", "<pad>")])
    named |= {text: AddedToken(text, special=False, normalized=False) for text in languages}
    return build(folder, model, tokens, special, named, ([], [end]))


def tokens_by_id(folder: Path, name: str) -> list[str]:
    ids = read_object(folder / name)
    subject = f"checkpoint {folder}"
    if not ids:
        raise CheckpointError(subject, [f"{name} is missing or empty"])
    if sorted(ids.values(), key=str) != sorted(range(len(ids)), key=str):
        raise CheckpointError(subject, [f"{name} gives {len(ids)} tokens other ids than 0 to {len(ids) - 1}"])
    return sorted(ids, key=ids.__getitem__)


def build(
    folder: Path,
    model: SentencePieceModel,
    tokens: Sequence[str],
    special: SpecialTokens,
    named: Mapping[str, AddedToken],
    around: Around,
    prefixed: str = "always",
) -> Tokenizer:
    """The tokenizer of a family, from its model, the tokens by their ids, and its special tokens.

    Raises:
        CheckpointError: as `finish`; the unknown token is missing.
    """
    unknown = special.content("unk_token", "<unk>")
    if unknown not in tokens:
        raise CheckpointError(f"checkpoint {folder}", [f"the vocabulary lacks {unknown!r}, the unknown token"])
    shown = frozenset((*named, *(token.content for token in special.added.values())))
    tokenizer = build_tokenizer(model, Vocabulary(tokens, unknown, shown, prefixed))
    finish(folder, tokenizer, special, named, around, whole_text=prefixed == "first")
    return tokenizer
