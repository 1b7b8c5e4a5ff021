"""`edgeformer run` on encoders: what their head is for."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeformer.cli.inputs import Line
    from edgeformer.runtime import EncoderModel
    from edgeformer.runtime.encoder_text import EncodedInput

BATCHES = 16  # read ahead, so that inputs of like lengths can be computed together
FIRST_NUMBERS = 6  # of a vector
MOST_COMPARED = 12  # inputs of a table of similarities
TOP_K = 5
DIGITS = 8  # behind the point, which says all that a float32 of such a size does


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """How inputs are read and computed.

    Attributes:
        pairs: whether an input is two texts with a tab between them.
        truncate: whether what is too long is cut.
        top_k: tokens for each mask.
        batch_size: most inputs that are computed together.
    """

    pairs: bool
    truncate: bool
    top_k: int
    batch_size: int


def encoder_options(model: EncoderModel, *, pairs: bool, truncate: bool, top_k: int | None, batch_size: int) -> Options:
    """The options that were given.

    Raises:
        OptionError: top_k, which the model's head has no use for.
    """
    from edgeformer.runtime.errors import OptionError

    if top_k is not None and model.record.head != "masked-tokens":
        raise OptionError(f"--top-k is for heads that fill masks; this one is for {model.record.head}")
    return Options(pairs, truncate, TOP_K if top_k is None else top_k, batch_size)


def results(
    model: EncoderModel, lines: Iterable[Line], options: Options, on_done: Any
) -> Iterator[tuple[Line, dict[str, Any]]]:
    """Each line with what the model's head says, in their order, some batches at a time.

    Raises:
        InputError: there are no lines, or the model cannot take one; its place is named.
    """
    from edgeformer.runtime.errors import InputError

    rest, any_lines = iter(lines), False
    while chunk := list(itertools.islice(rest, BATCHES * max(options.batch_size, 1))):
        any_lines = True
        rows = [encoded(model, line, options) for line in chunk]
        yield from zip(chunk, values(model, rows, options, on_done), strict=True)
    if not any_lines:
        raise InputError("there are no inputs: give at least one")


def encoded(model: EncoderModel, line: Line, options: Options) -> EncodedInput:
    from edgeformer.runtime.errors import InputError

    first, tab, second = line.text.partition("\t")
    if options.pairs and not tab:
        raise line.error(f"input {line.text!r:.80} has no tab between two texts")
    try:
        return model.text.encode((first, second) if options.pairs else line.text, truncate=options.truncate)
    except InputError as error:
        raise line.error(error) from error


def values(
    model: EncoderModel, rows: Sequence[EncodedInput], options: Options, on_done: Any
) -> Iterator[dict[str, Any]]:
    """What the head says of each row, as values for JSON."""
    more: dict[str, Any] = {"batch_size": options.batch_size, "on_done": on_done}
    head = model.record.head
    if head == "sequence-classes":
        for found in model.classify(rows, **more):
            scores = {score.label: score.score for score in found.scores}
            yield {"label": found.label, "score": found.score, "scores": scores}
    elif head == "token-classes":
        for tokens in model.label_tokens(rows, **more):
            yield {"tokens": [dataclasses.asdict(token) for token in tokens]}
    elif head == "masked-tokens":
        for masks in model.fill_mask(rows, options.top_k, **more):
            yield {"masks": [dataclasses.asdict(mask) for mask in masks]}
    else:
        name = "embedding" if head == "embedding" else "hidden_states"
        yield from ({name: vectors.astype(float).round(DIGITS).tolist()} for vectors in model.encode(rows, **more))


def text_lines(found: dict[str, Any]) -> list[str]:
    """A result for people: one line, or one for each class, token or filling."""
    if "scores" in found:
        return [f"{label}\t{score:.4f}" for label, score in found["scores"].items()]
    if "tokens" in found:
        return [f"{token['text']}\t{token['label']}\t{token['score']:.4f}" for token in found["tokens"]]
    if "masks" in found:
        fillings = [filling for mask in found["masks"] for filling in mask["fillings"]]
        return [f"{filling['text'] or filling['token']}\t{filling['score']:.4f}" for filling in fillings]
    if "embedding" in found:
        return [f"{len(found['embedding'])} numbers: {numbers(found['embedding'])}"]
    states = found["hidden_states"]
    return [f"{len(states)} tokens of {len(states[0])} numbers: {numbers(states[0])}"]


def numbers(vector: Sequence[float]) -> str:
    shown = " ".join(f"{number:.4f}" for number in vector[:FIRST_NUMBERS])
    return shown + (" ..." if len(vector) > FIRST_NUMBERS else "")


def run_encoder(
    model: EncoderModel, lines: Iterable[Line], options: Options, on_done: Any, *, alone: bool, as_json: bool
) -> None:
    """Compute and print."""
    from edgeformer.cli.printing import print_json, print_line

    vectors: list[Sequence[float]] = []
    for line, found in results(model, lines, options, on_done):
        if as_json:
            print_json({"input": line.text, **found}, indent=None)
            continue
        for shown in text_lines(found):
            print_line(shown if alone else f"{line.text}\t{shown}")
        if "embedding" in found and len(vectors) <= MOST_COMPARED:
            vectors.append(found["embedding"])
    if 1 < len(vectors) <= MOST_COMPARED:
        print_similarities(vectors)


def print_similarities(vectors: Sequence[Sequence[float]]) -> None:
    """The cosine of each pair of embeddings, numbered in their order."""
    import numpy as np

    from edgeformer.cli.printing import print_line, print_table

    array = np.array(vectors)
    array /= np.linalg.norm(array, axis=1, keepdims=True)
    names = [str(i + 1) for i in range(len(array))]
    print_line()
    print_line("cosine similarities")
    rows = [[name, *(f"{cosine:.3f}" for cosine in row)] for name, row in zip(names, array @ array.T, strict=True)]
    print_table(["", *names], rows, numbers=names)
