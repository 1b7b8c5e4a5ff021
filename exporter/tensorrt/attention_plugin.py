"""Attention as two operators of our own, for TensorRT versions that have no attention layer.

Both stand in the ONNX domain `edgeformer`, version 1, and carry the attributes `plugin_namespace` ("edgeformer") and
`plugin_version` ("1") by which TensorRT's parser finds a plugin: its name is the operator's. Other attributes are those
of the plugin's creator, all given, all of them int32 but `scale`, which is float32. No input is optional.

`T` is the type of the graph's activations and of its caches: float16, bfloat16 or float32. Scores, softmax and sums are
computed in float32 whatever T is. Lengths are int32, one a row.

**CachedAttention** writes new keys and values behind each row's length and attends to all that the row then holds.

    inputs   0 query          T     (batch, num_heads, q_len, head_dim)
             1 key            T     (batch, num_kv_heads, q_len, head_dim)      of the new tokens
             2 value          T     (batch, num_kv_heads, q_len, head_dim)
             3 past_key       T     (batch, num_kv_heads, capacity, head_dim)   an input of the network
             4 past_value     T     (batch, num_kv_heads, capacity, head_dim)   an input of the network
             5 cache_lengths  int32 (batch,)                                    tokens that each row's cache holds
    outputs  0 context        T     (batch, num_heads, q_len, head_dim)
             1 present_key    T     (batch, num_kv_heads, capacity, head_dim)   aliases past_key, where versions allow
             2 present_value  T     (batch, num_kv_heads, capacity, head_dim)   aliases past_value
    attributes  scale         factor of the scores, 1 / sqrt(head_dim) if nothing else was asked for
                num_heads     a multiple of num_kv_heads; query head h reads head h // (num_heads / num_kv_heads)
                num_kv_heads
                window        a query sees its own position and the window - 1 before it; 0: all before it

    present_key[b, :, cache_lengths[b] + t] = key[b, :, t], for t < q_len; elsewhere past_key; likewise the values.
    Query t of row b stands at p = cache_lengths[b] + t and sees present positions j with j <= p, and with
    p - window < j where window > 0.

A padded column (t at or past the row's real tokens) is written and attended to like any other: its result is not used,
but it must be finite. Writes at or past capacity are dropped. Unwritten parts of a cache hold finite numbers.

**SourceAttention** attends from any number of queries to a source, in the encoder and from the decoder alike.

    inputs   0 query           T     (batch, num_heads, q_len, head_dim)
             1 key             T     (batch, num_kv_heads, source_len, head_dim)
             2 value           T     (batch, num_kv_heads, source_len, head_dim)
             3 source_lengths  int32 (batch,)                                   at least 1 each
    outputs  0 context         T     (batch, num_heads, q_len, head_dim)
    attributes  scale, num_heads, num_kv_heads   as above

    Every query of row b sees the positions j < source_lengths[b]. A row of length 0 gives zeros.
"""

from __future__ import annotations

DOMAIN = "edgeformer"  # of the operators, and the namespace of the plugins
VERSION = 1
CACHED_ATTENTION, SOURCE_ATTENTION = "CachedAttention", "SourceAttention"
