"""GPT-2 (Radford et al. 2019): every number that decides what it computes."""

from __future__ import annotations

import dataclasses

from edgeformer.models.configs.activations import ACTIVATIONS, Activation
from edgeformer.models.configs.keys import Keys
from edgeformer.models.configs.special_tokens import decoder_tokens


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gpt2Config:
    """A decoder of pre-norm layers with learned positions.

    Attributes:
        scale_scores: whether a query's products with keys are divided by sqrt(head_dim).
        scale_scores_by_layer: whether they are divided by the layer's number as well, the first layer's being 1.
        tied: whether the vocabulary projection is the embedding matrix.
    """

    vocab_size: int
    d_model: int
    num_layers: int
    num_heads: int
    d_ff: int
    max_positions: int
    activation: Activation = "gelu-tanh"
    norm_eps: float = 1e-5
    scale_scores: bool = True
    scale_scores_by_layer: bool = False
    tied: bool = True
    pad_token_id: int = 0
    start_token_id: int = 0
    eos_token_ids: tuple[int, ...] = ()

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.d_model // self.num_heads

    @property
    def num_kv_heads(self) -> int:
        """Every head has keys and values of its own."""
        return self.num_heads

    @classmethod
    def from_keys(cls, keys: Keys) -> Gpt2Config:
        """GPT-2's configuration; DistilGPT-2's as well.

        Raises:
            ConfigError: with every key that is missing, out of range, or not understood.
        """
        d_model, num_heads, vocab_size = keys.whole("n_embd"), keys.whole("n_head"), keys.whole("vocab_size")
        if d_model % num_heads:
            keys.problem(f"n_embd {d_model} is not a multiple of n_head {num_heads}")
        max_positions = keys.whole("n_positions")
        keys.expect("n_ctx", max_positions)  # an older name
        # Another order of the same products, for training in half precision, and heads for other tasks.
        keys.ignore(*"reorder_and_upcast_attn summary_type summary_use_proj summary_activation".split())
        keys.ignore("summary_proj_to_labels")
        fields = {
            "d_ff": keys.whole("n_inner", 4 * d_model),
            "num_layers": keys.whole("n_layer"),
            "activation": keys.choice("activation_function", ACTIVATIONS, "gelu_new"),
            "norm_eps": keys.number("layer_norm_epsilon", 1e-5),
            "scale_scores": keys.flag("scale_attn_weights", True),
            "scale_scores_by_layer": keys.flag("scale_attn_by_inverse_layer_idx", False),
            "tied": keys.flag("tie_word_embeddings", True),
            **decoder_tokens(keys, vocab_size),
        }
        keys.finish()
        return cls(vocab_size=vocab_size, d_model=d_model, num_heads=num_heads, max_positions=max_positions, **fields)
