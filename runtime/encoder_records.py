"""What a manifest says of an encoder that does not write, and the contract of its graph.

inputs   input_ids            int64 (batch, source_len)     right-padded with any id
         source_lengths       int64 (batch,)                at least 1 each
         token_type_ids       int64 (batch, source_len)     where the model has token types
         logits_at            int64 (batch, n)              positions whose words are wanted, where it fills masks
outputs  last_hidden_state          (batch, source_len, d_model)
         sentence_embedding         (batch, width)          of a sentence encoder
         logits                     (batch, width) for a text, (batch, source_len, width) for each token,
                                    (batch, n, width) at the wanted positions
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from edgeformer.runtime import names
from edgeformer.runtime.names import Dims

Head = Literal["hidden-states", "embedding", "sequence-classes", "token-classes", "masked-tokens"]
Scoring = Literal["softmax", "sigmoid", "none"]

TOKEN_TYPE_IDS = "token_type_ids"
LAST_HIDDEN_STATE = "last_hidden_state"
EMBEDDING = "sentence_embedding"


@dataclasses.dataclass(frozen=True, slots=True)
class EncoderSample:
    """What PyTorch gave for an input when the bundle was made.

    Attributes:
        source_ids: the input, with its special tokens.
        token_type_ids: one for each of them, or none.
        positions: where `values` were taken; none where the output is one vector for the whole input.
        columns: which numbers of the output `values` are; none where they are all.
        values: a row for each position, or the one vector.
    """

    source_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...]
    positions: tuple[int, ...]
    columns: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class EncoderRecord:
    """What an encoder's outputs are.

    Attributes:
        head: what the last output is.
        d_model: width of the hidden states.
        width: of the last output.
        has_token_types: whether its graph takes token_type_ids.
        labels: names of the classes, in the order of the logits; none where the head has no classes.
        scoring: what turns the logits of classes into scores.
        samples: what PyTorch gave.
    """

    head: Head
    d_model: int
    width: int
    has_token_types: bool
    labels: tuple[str, ...]
    scoring: Scoring
    samples: tuple[EncoderSample, ...] = ()

    @property
    def output(self) -> str:
        """Name of the last output."""
        return {"hidden-states": LAST_HIDDEN_STATE, "embedding": EMBEDDING}.get(self.head, names.LOGITS)

    def inputs(self) -> dict[str, Dims]:
        """The int64 inputs of its graph, in their order."""
        inputs: dict[str, Dims] = names.encoder_inputs()
        if self.has_token_types:
            inputs[TOKEN_TYPE_IDS] = inputs[names.INPUT_IDS]
        if self.head == "masked-tokens":
            inputs[names.LOGITS_AT] = ("batch", "n")
        return inputs

    def outputs(self) -> dict[str, Dims]:
        """The outputs of its graph, in their order."""
        found: dict[str, Dims] = {LAST_HIDDEN_STATE: ("batch", "source_len", self.d_model)}
        middle: dict[Head, Dims] = {"token-classes": ("source_len",), "masked-tokens": ("n",)}
        if self.head != "hidden-states":
            found[self.output] = ("batch", *middle.get(self.head, ()), self.width)
        return found


def parse_encoder(values: Mapping[str, Any]) -> EncoderRecord:
    """The record of a manifest.

    Raises:
        KeyError, TypeError, ValueError: it is damaged.
    """
    samples = tuple(map(parse_sample, values["samples"]))
    record = EncoderRecord(**{**values, "labels": tuple(values["labels"]), "samples": samples})
    if problems := list(senseless_encoder(record)):
        raise ValueError("; ".join(problems))
    return record


def parse_sample(values: Mapping[str, Any]) -> EncoderSample:
    whole = ("source_ids", "token_type_ids", "positions", "columns")
    rows = tuple(tuple(map(float, row)) for row in values["values"])
    return EncoderSample(**{**values, **{name: tuple(map(int, values[name])) for name in whole}, "values": rows})


def senseless_encoder(record: EncoderRecord) -> Iterator[str]:
    for name, known in (("head", get_args(Head)), ("scoring", get_args(Scoring))):
        if getattr(record, name) not in known:
            yield f"{name} is {getattr(record, name)!r}, expected one of {', '.join(known)}"
    for name in ("d_model", "width"):
        if type(number := getattr(record, name)) is not int or number < 1:
            yield f"{name} is {number!r}, expected a whole number of at least 1"
    if type(record.has_token_types) is not bool:
        yield f"has_token_types is {record.has_token_types!r}, expected true or false"
    if wrong := [label for label in record.labels if not isinstance(label, str)]:
        yield f"labels {wrong!r} are no text"
    if record.head in ("sequence-classes", "token-classes") and len(record.labels) != record.width:
        yield f"{len(record.labels)} labels for {record.width} classes"
    if not all(map(math.isfinite, (value for sample in record.samples for row in sample.values for value in row))):
        yield "a sample holds a value that is not finite"
