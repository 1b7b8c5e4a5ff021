"""The contract between exporter and runtime: names, types and symbolic shapes of every graph's inputs and outputs.

Every decoder exports to one *step graph* that serves prefill, decoding and scoring alike. Query t of row b stands at
`cache_lengths[b] + t` and sees its own row's cache up to there; what padding wrote behind a row's length is never seen,
and is overwritten by the next step.
"""

from __future__ import annotations

import dataclasses

INPUT_IDS = "input_ids"
SOURCE_LENGTHS = "source_lengths"
CACHE_LENGTHS = "cache_lengths"
LOGITS_AT = "logits_at"
LOGITS = "logits"

# What a step graph rewritten for a CPU takes instead of `cache_lengths`: numbers that the caller has at hand, and that
# would cost the graph a dozen operators a step.
POSITIONS = "positions"  # int64 (batch, q_len): where each new token stands
LAST_POSITIONS = "last_positions"  # int32 (batch,): where each row's last column stands
TOTAL_LENGTH = "total_length"  # int32 (1,): the longest row, with the new tokens
SOURCE_SHAPE = "source_shape"  # int64 (3,): queries grouped by source, (sources, rows per source * q_len, d_model)
ROW_SHAPE = "row_shape"  # int64 (3,): queries by row, (batch, q_len, d_model)

# Tables that it takes where it turns queries and keys by their positions, as a graph of their own makes them, of as
# many rows as the caller's caches are long: (rows, head_dim / 2), by number, since layers may turn in several ways.
COSINES = "cosines"
SINES = "sines"
ROTATION = "rotation"  # the role of that graph: positions int64 (1, rows) -> cosines.{i}, sines.{i}

# What an encoder's graph for long sources takes beside the encoder's own inputs.
LONG_ENCODER = "long-encoder"  # the role of that graph
QUERY_BLOCK = "query_block"  # int64 (1,): queries whose scores are computed at once

# What a step graph rewritten for a GPU gives beside the logits, so that a greedy step brings one id a row to the host.
NEXT_IDS = "next_ids"  # int64 (batch, n): the likeliest token
NEXT_LOG_PROBS = "next_log_probs"  # float32 (batch, n): its log-probability

# What the graph takes that picks rows of caches on a GPU, beside the caches themselves.
SELECTED = "selected"  # int64 (new_batch,): the rows to go on with

Dims = tuple["str | int", ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers that shape a model's caches and outputs.

    Attributes:
        source_vocab_size: ids that an encoder-decoder's encoder knows; 0 where there is no source.
        max_source_positions: the most tokens of a source; 0 where there is none.
    """

    vocab_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    source_vocab_size: int = 0
    max_source_positions: int = 0

    @property
    def has_source(self) -> bool:
        """Whether steps attend to a source that an encoder has read."""
        return self.max_source_positions > 0


def key_value_names(prefix: str, num_layers: int) -> list[str]:
    """`prefix.0.key`, `prefix.0.value`, `prefix.1.key`, ..."""
    return [f"{prefix}.{i}.{part}" for i in range(num_layers) for part in ("key", "value")]


def past_names(sizes: Sizes) -> list[str]:
    return key_value_names("past_key_values", sizes.num_layers)


def present_names(sizes: Sizes) -> list[str]:
    return key_value_names("present", sizes.num_layers)


def encoded_names(sizes: Sizes) -> list[str]:
    """The encoder's keys and values, in the order of the decoder's layers; none where there is no source."""
    return key_value_names("encoder_key_values", sizes.num_layers) if sizes.has_source else []


def rotation_names(i: int) -> tuple[str, str]:
    """The tables of the i-th way to turn queries and keys."""
    return f"{COSINES}.{i}", f"{SINES}.{i}"


def encoder_inputs() -> dict[str, Dims]:
    """int64 inputs of the encoder graph; `input_ids` is right-padded."""
    return {INPUT_IDS: ("batch", "source_len"), SOURCE_LENGTHS: ("batch",)}


def step_inputs(sizes: Sizes) -> dict[str, Dims]:
    """int64 inputs of the step graph; caches and the encoder's keys and values follow them."""
    inputs: dict[str, Dims] = {
        INPUT_IDS: ("batch", "q_len"),
        CACHE_LENGTHS: ("batch",),
        LOGITS_AT: ("batch", "n"),
    }
    return inputs | {SOURCE_LENGTHS: ("batch",)} if sizes.has_source else inputs


def cache_shape(sizes: Sizes) -> Dims:
    return ("batch", sizes.num_kv_heads, "capacity", sizes.head_dim)


def encoded_shape(sizes: Sizes) -> Dims:
    return ("batch", sizes.num_heads, "source_len", sizes.head_dim)
