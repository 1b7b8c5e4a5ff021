"""What comes out of an encoder: told by config.json's `architectures`, or by a sentence encoder's own files."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from edgeformer.models.configs.keys import Keys, is_whole, shown
from edgeformer.models.configs.sentence_encoders import Pooling, is_sentence_encoder, read_pooling

Head = Literal["hidden-states", "embedding", "sequence-classes", "token-classes", "masked-tokens"]
Scoring = Literal["softmax", "sigmoid", "none"]

# The ends of Hugging Face's class names: BertForMaskedLM, RobertaModel, ...
HEADS: dict[str, Head] = {
    "Model": "hidden-states",
    "ForMaskedLM": "masked-tokens",
    "ForPreTraining": "masked-tokens",
    "ForSequenceClassification": "sequence-classes",
    "ForTokenClassification": "token-classes",
}
PROBLEMS: dict[str, Scoring] = {
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
    "regression": "none",
}
# Cross-encoders of sentence-transformers name a class of torch, which takes the place of what the problem asks for.
CROSS_ENCODER, CROSS_ENCODER_BEFORE = "sentence_transformers", "sbert_ce_default_activation_function"
ACTIVATIONS: dict[str, Scoring] = {"Identity": "none", "Sigmoid": "sigmoid", "Softmax": "softmax"}
CLASSES_BY_DEFAULT = 2  # Hugging Face's, where config.json names none


@dataclasses.dataclass(frozen=True, slots=True)
class HeadConfig:
    """The head of an encoder.

    Attributes:
        kind: what the last output is.
        labels: names of the classes, in the order of the logits.
        scoring: what turns the logits of classes into scores.
        pooling: how hidden states become an embedding.
    """

    kind: Head = "hidden-states"
    labels: tuple[str, ...] = ()
    scoring: Scoring = "softmax"
    pooling: Pooling | None = None


def read_head(keys: Keys) -> HeadConfig:
    """The head of a checkpoint; what is wrong with it is added to the problems of `keys`."""
    if keys.folder is not None and is_sentence_encoder(keys.folder):
        return HeadConfig("embedding", pooling=read_pooling(keys))
    kind = read_kind(keys)
    if kind not in ("sequence-classes", "token-classes"):
        return HeadConfig(kind)
    labels = read_labels(keys)
    return HeadConfig(kind, labels, read_scoring(keys, kind, len(labels)))


def read_kind(keys: Keys) -> Head:
    names = keys.raw("architectures", [])
    if not names:
        return "hidden-states"
    known = ", ".join(f"...{end}" for end in HEADS)
    if not isinstance(names, list) or len(names) > 1 or not isinstance(names[0], str):
        keys.problem(f"architectures is {shown(names)}, expected a list of one name: {known}")
        return "hidden-states"
    for end, head in HEADS.items():
        if names[0].endswith(end) and not names[0].endswith("LMHeadModel"):
            return head
    keys.problem(f"architectures is {shown(names)}, and such a head is not supported: only {known} are")
    return "hidden-states"


def read_labels(keys: Keys) -> tuple[str, ...]:
    """The names of `id2label`, or Hugging Face's own where there are none."""
    count = keys.whole("num_labels", CLASSES_BY_DEFAULT)
    names: Any = keys.raw("id2label")
    if names is None:
        return tuple(f"LABEL_{i}" for i in range(count))
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
        keys.problem(f"id2label is {names!r:.80}, expected a name for each class")
        return ()
    by_id = {int(i): name for i, name in names.items() if i.isdecimal()}
    if sorted(by_id) != list(range(len(names))):
        keys.problem(f"id2label has the ids {', '.join(names)}, expected those from 0 to {len(names) - 1}")
        return ()
    given = keys.raw("num_labels")
    if is_whole(given) and given != len(names):
        keys.problem(f"num_labels is {given}, id2label names {len(names)}")
    return tuple(by_id[i] for i in range(len(by_id)))


def read_scoring(keys: Keys, kind: Head, num_labels: int) -> Scoring:
    """As Hugging Face's pipelines score: one class alone is a probability of its own."""
    named: Scoring = keys.choice("problem_type", PROBLEMS, "single_label_classification")
    if (activation := read_activation(keys)) is not None:
        return activation
    if kind == "token-classes":
        return "softmax"
    return "sigmoid" if num_labels == 1 and named == "softmax" else named


def read_activation(keys: Keys) -> Scoring | None:
    """What a cross-encoder makes scores by; None where the checkpoint is none, or does not say."""
    described: Any = keys.raw(CROSS_ENCODER, {})
    before = keys.raw(CROSS_ENCODER_BEFORE)
    name = described.get("activation_fn", before) if isinstance(described, dict) else described
    if name is None:
        return None
    found = ACTIVATIONS.get(str(name).rpartition(".")[2])
    if found is None:
        key = CROSS_ENCODER_BEFORE if described == {} else CROSS_ENCODER
        keys.problem(f"{key}: a cross-encoder's activation is {shown(name)}, expected one of {', '.join(ACTIVATIONS)}")
    return found
