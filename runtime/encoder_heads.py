"""What the logits of an encoder's head say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edgeformer.runtime.backends import Floats
from edgeformer.runtime.encoder_records import Scoring
from edgeformer.runtime.encoder_results import Classification, FilledMask, Filling, LabelledToken, LabelScore
from edgeformer.runtime.encoder_text import EncodedInput, EncoderText
from edgeformer.runtime.errors import InputError
from edgeformer.runtime.probabilities import log_softmax


def scores_of(logits: Floats, scoring: Scoring) -> Floats:
    """Scores of classes, float32 of the logits' shape."""
    if scoring == "softmax":
        return np.exp(log_softmax(logits))
    return np.exp(-np.logaddexp(0, -logits)) if scoring == "sigmoid" else logits.copy()


def classification(logits: Floats, labels: Sequence[str], scoring: Scoring) -> Classification:
    """The classes of an input, of logits (labels,)."""
    scores = scores_of(logits, scoring)
    best = np.argsort(-scores, kind="stable")
    return Classification(tuple(LabelScore(labels[i], float(scores[i])) for i in best))


def labelled_tokens(
    row: EncodedInput, logits: Floats, labels: Sequence[str], scoring: Scoring, text: EncoderText
) -> Iterator[LabelledToken]:
    """The class of each token of an input that the tokenizer did not add, of logits (tokens, labels)."""
    scores = scores_of(logits, scoring)
    best = scores.argmax(-1)
    for at, token in enumerate(row.ids):
        if row.is_special and row.is_special[at]:
            continue
        start, end = row.offsets[at] if row.offsets else (None, None)
        part = row.text[start:end] if row.offsets else text.written(token)
        yield LabelledToken(part, start, end, token, labels[best[at]], float(scores[at, best[at]]))


def masks_of(row: EncodedInput, text: EncoderText) -> list[int]:
    """Where the masks stand among an input's tokens.

    Raises:
        InputError: there are none.
    """
    mask = text.mask_id
    if found := [at for at, token in enumerate(row.ids) if token == mask]:
        return found
    shown = row.text or list(row.ids)
    raise InputError(f"input {shown!r:.80} has no mask: write {text.written(mask)} into it")


def filled_mask(row: EncodedInput, at: int, logits: Floats, top_k: int, text: EncoderText) -> FilledMask:
    """The likeliest tokens for the mask at a position, of logits (vocab_size,)."""
    log_probs = log_softmax(logits)
    fillings = []
    for token in np.argsort(-log_probs, kind="stable")[:top_k].tolist():
        word = text.written(token)
        fillings.append(Filling(word, token, float(np.exp(log_probs[token])), with_word(row, at, word)))
    return FilledMask(at, tuple(fillings))


def with_word(row: EncodedInput, at: int, word: str) -> str:
    """An input's text with a word instead of the token there; empty where there is no one text."""
    if not row.offsets:
        return ""
    start, end = row.offsets[at]
    replaced = row.text[start:end]
    spaces = replaced[: len(replaced) - len(replaced.lstrip())]  # which some tokenizers count to the mask
    return row.text[:start] + spaces + word + row.text[end:]
