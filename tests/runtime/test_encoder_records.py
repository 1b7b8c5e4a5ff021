"""What a manifest says of an encoder comes back as it was, or is refused as damaged."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from edgeformer.runtime.encoder_records import EncoderRecord, EncoderSample, parse_encoder

SAMPLE = EncoderSample((5, 6), (0, 1), (0, 1), (), ((0.5, -1.25, 3.0), (0.0, 2.0, 1e-7)))
RECORD = EncoderRecord("token-classes", 8, 3, True, ("O", "B", "I"), "softmax", (SAMPLE,))


def stored(**changes: Any) -> Any:
    return json.loads(json.dumps(dataclasses.asdict(RECORD))) | changes


def test_a_record_comes_back_as_it_was() -> None:
    assert parse_encoder(stored()) == RECORD


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"head": "words"}, "head is 'words', expected one of hidden-states"),
        ({"scoring": "rank"}, "scoring is 'rank', expected one of softmax"),
        ({"width": 0}, "width is 0, expected a whole number"),
        ({"d_model": "8"}, "d_model is '8', expected a whole number"),
        ({"has_token_types": 1}, "has_token_types is 1, expected true or false"),
        ({"labels": ["O"]}, "1 labels for 3 classes"),
        ({"labels": ["O", 2, "I"]}, r"labels \[2\] are no text"),
        ({"samples": [dataclasses.asdict(SAMPLE) | {"values": [[float("nan")]]}]}, "a value that is not finite"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_encoder(stored(**changes))


@pytest.mark.parametrize(
    ("head", "middle"),
    [
        ("hidden-states", None),
        ("embedding", ()),
        ("sequence-classes", ()),
        ("token-classes", ("source_len",)),
        ("masked-tokens", ("n",)),
    ],
)
def test_a_head_decides_inputs_and_outputs(head: Any, middle: tuple[str, ...] | None) -> None:
    record = dataclasses.replace(RECORD, head=head, has_token_types=False)
    outputs = record.outputs()
    assert outputs["last_hidden_state"] == ("batch", "source_len", 8)
    if middle is None:
        assert (list(outputs), record.output) == (["last_hidden_state"], "last_hidden_state")
    else:
        assert outputs[record.output] == ("batch", *middle, 3)
    more = ["logits_at"] if head == "masked-tokens" else []
    assert list(record.inputs()) == ["input_ids", "source_lengths", *more]
    assert list(dataclasses.replace(record, has_token_types=True).inputs())[2] == "token_type_ids"
