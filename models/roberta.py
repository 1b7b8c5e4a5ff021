"""RoBERTa (Liu et al. 2019), XLM-RoBERTa and CamemBERT: BERT with other names, positions and heads."""

from __future__ import annotations

from typing import ClassVar

from edgeformer.models.bert import Bert, Rules


class Roberta(Bert):
    base_prefix: ClassVar[str] = "roberta."
    head_rules: ClassVar[Rules] = (
        (r"^text_classes\.inner", "classifier.dense"),
        (r"^text_classes\.outer", "classifier.out_proj"),
        (r"^token_classes", "classifier"),
        (r"^masked_tokens\.inner", "lm_head.dense"),
        (r"^masked_tokens\.norm", "lm_head.layer_norm"),
        (r"^masked_tokens\.projection", "lm_head.decoder"),
        (r"^masked_tokens\.bias", "lm_head.bias"),
    )
    ignored: ClassVar[tuple[str, ...]] = ("lm_head.", "roberta.pooler.", "pooler.")
