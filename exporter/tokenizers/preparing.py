"""The tokenizers of a checkpoint folder, copied or converted into a bundle, and checked against the model."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer

from edgeformer.exporter.tokenizers import sentencepiece_families, words
from edgeformer.exporter.tokenizers.finishing import make_roles_special
from edgeformer.exporter.tokenizers.special_tokens import SpecialTokens, read_special_tokens
from edgeformer.runtime.errors import CheckpointError

SOURCE, TARGET = "tokenizer.json", "target_tokenizer.json"


@dataclasses.dataclass(frozen=True, slots=True)
class Format:
    """What a folder may have instead of tokenizer.json.

    Attributes:
        files: that make it.
        classes: how the names of those of transformers' classes begin that read it in the same way.
        convert: gives tokenizers by the names to save them under.
    """

    files: tuple[str, ...]
    classes: tuple[str, ...]
    convert: Callable[[Path, SpecialTokens], dict[str, Tokenizer]]


FORMATS = (  # the first whose files are all there is taken
    Format(("source.spm", "target.spm", "vocab.json"), ("Marian",), sentencepiece_families.marian),
    Format(("sentencepiece.bpe.model",), ("XLMRoberta", "MBart"), sentencepiece_families.fairseq),
    Format(("spiece.model",), ("T5", "MT5", "UMT5"), sentencepiece_families.t5),
    Format(("tokenizer.model",), ("Llama", "CodeLlama", "Mistral"), sentencepiece_families.llama),
    Format(("vocab.json", "merges.txt"), ("GPT2", "CodeGen", "Roberta", "Bart", "Qwen2"), words.byte_level),
    Format(("vocab.txt",), ("Bert", "DistilBert", "Electra"), words.wordpiece),
)
ANY_CLASS = ("PreTrainedTokenizer", "TokenizersBackend")


def prepare_tokenizers(checkpoint: Path, folder: Path, vocab_size: int, source_vocab_size: int) -> None:
    """Write a checkpoint's tokenizers into a folder: tokenizer.json, and target_tokenizer.json where targets differ.

    Args:
        checkpoint: has tokenizer.json, which is taken as it is, or files that are converted into it.
        folder: where to write.
        vocab_size: ids of the logits, and of the decoder's inputs.
        source_vocab_size: ids that the encoder knows; the same where there is no encoder of its own.

    Raises:
        CheckpointError: there is no tokenizer, it cannot be read, or it gives ids that the model does not have; with
            every problem.
    """
    if (checkpoint / SOURCE).is_file():
        names = [name for name in (SOURCE, TARGET) if (checkpoint / name).is_file()]
        if damaged := [problem for name in names if (problem := copy_tokenizer(checkpoint, folder, name))]:
            raise CheckpointError(f"checkpoint {checkpoint}", damaged)
    else:
        for name, tokenizer in convert_tokenizers(checkpoint).items():
            tokenizer.save(str(folder / name))
    sizes = {SOURCE: source_vocab_size, TARGET: vocab_size}
    if not (folder / TARGET).is_file():
        sizes = {SOURCE: min(vocab_size, source_vocab_size)}
    problems = [problem for name, size in sizes.items() if (problem := wrong_tokenizer(folder / name, size))]
    if problems:
        raise CheckpointError(f"checkpoint {checkpoint}", problems)


def copy_tokenizer(checkpoint: Path, folder: Path, name: str) -> str | None:
    """Copy a tokenizer as it is, unless tokenizer_config.json gives a role to a token that is not special in it.

    Returns:
        what is wrong with it.
    """
    try:
        tokenizer = Tokenizer.from_file(str(checkpoint / name))
    except Exception as error:  # tokenizers raises plain Exception
        return f"{name} is not a tokenizer: {error}"
    if make_roles_special(tokenizer, read_special_tokens(checkpoint)):
        tokenizer.save(str(folder / name))
    else:
        shutil.copyfile(checkpoint / name, folder / name)
    return None


def convert_tokenizers(checkpoint: Path) -> dict[str, Tokenizer]:
    """Tokenizers made from what a checkpoint folder has instead of tokenizer.json, by the names to save them under.

    Raises:
        CheckpointError: it has none of the files that are known, they belong to a tokenizer that is not known, or they
            cannot be converted.
    """
    for form in FORMATS:
        if all((checkpoint / name).is_file() for name in form.files):
            special = read_special_tokens(checkpoint)
            named = str(special.config.get("tokenizer_class") or "")
            if named and not named.startswith((*form.classes, *ANY_CLASS)):
                problem = f"tokenizer_class is {named}: {' + '.join(form.files)} is read for {', '.join(form.classes)}"
                raise CheckpointError(f"checkpoint {checkpoint}", [f"{problem}; save it with a tokenizer.json"])
            return form.convert(checkpoint, special)
    known = "; ".join(" + ".join(files) for files in ((SOURCE,), *(form.files for form in FORMATS)))
    raise CheckpointError(f"checkpoint {checkpoint}", [f"it has no tokenizer: looked for {known}"])


def wrong_tokenizer(path: Path, size: int) -> str | None:
    """What is wrong with a tokenizer for a model with so many ids. Ids that no token has are no problem."""
    tokens = Tokenizer.from_file(str(path)).get_vocab()
    if not tokens:
        return f"{path.name} has no tokens"
    beyond = sorted((i, token) for token, i in tokens.items() if i >= size)
    if not beyond:
        return None
    listed = ", ".join(f"{token!r} ({i})" for i, token in beyond[:3])
    return (
        f"{path.name} has ids up to {beyond[-1][0]}, the model's vocab_size is {size}: {len(beyond)} tokens, such as "
        f"{listed}, have no embedding"
    )
