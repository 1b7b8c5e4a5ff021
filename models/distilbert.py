"""DistilBERT (Sanh et al. 2019): BERT without token types, with other names and heads."""

from __future__ import annotations

from typing import Any, ClassVar

from edgeformer.models.bert import EMBEDDING_RULES, Bert, Rules


class DistilBert(Bert):
    base_prefix: ClassVar[str] = "distilbert."
    rules: ClassVar[Rules] = (
        (r"^layers\.", "transformer.layer."),
        (r"attention\.query\.", "attention.q_lin."),
        (r"attention\.key\.", "attention.k_lin."),
        (r"attention\.value\.", "attention.v_lin."),
        (r"attention\.output\.", "attention.out_lin."),
        (r"attention_norm", "sa_layer_norm"),
        (r"inner", "ffn.lin1"),
        (r"outer", "ffn.lin2"),
        (r"feed_forward_norm", "output_layer_norm"),
        *EMBEDDING_RULES,
    )
    head_rules: ClassVar[Rules] = (
        (r"^text_classes\.inner", "pre_classifier"),
        (r"^text_classes\.outer", "classifier"),
        (r"^token_classes", "classifier"),
        (r"^masked_tokens\.inner", "vocab_transform"),
        (r"^masked_tokens\.norm", "vocab_layer_norm"),
        (r"^masked_tokens\.projection", "vocab_projector"),
        (r"^masked_tokens\.bias", "vocab_projector.bias"),
    )
    ignored: ClassVar[tuple[str, ...]] = ("vocab_transform.", "vocab_layer_norm.", "vocab_projector.")
    head_activation: ClassVar[Any] = "relu"
