"""What an engine computes in: an estimate, in whose place a build puts TensorRT's own figure.

Fitted to builds by TensorRT for RTX 1.7 (docs/tensorrt.md, docs/sizing.md): the paper's base model took 14.3 to 19.5 kB
a token of its encoder, where this says 15.4, and 472 to 482 MB of its decoder, where this says 494.
"""

from __future__ import annotations

from edgeformer.cli.sizing.shapes import Role, Shape
from edgeformer.runtime.memory_needs import Load

# Defaults of `exporter.tensorrt.profiles`; a test holds these to them.
LONGEST_STEP = {"encoder-decoder": 32, "decoder": 256}  # new tokens of a row in one step
WANTED = 32  # positions of a row whose logits are given at once
LOGIT = 6  # bytes each, and of what is computed from them
WORKSPACE = 8_000_000  # that small models take as well


def activation_bytes(shape: Shape, name: str, load: Load) -> int:
    """Of a graph, in its longest step: residuals in 32 bits, products and the widest layer in 16, and logits."""
    role, sizes = shape.roles[name], shape.sizes
    length = load.source_len if name == "encoder" else min(load.capacity, LONGEST_STEP[shape.kind])
    widest = max((weight.n for weight in role.products if not shape.is_head(weight)), default=0)
    per_token = 8 * model_width(role) + 4 * widest + 6 * sizes.num_heads * sizes.head_dim
    has_logits = any(shape.is_head(weight) for weight in role.products)
    logits = LOGIT * min(length, WANTED) * sizes.vocab_size if has_logits else 0
    return load.batch * (length * per_token + logits) + WORKSPACE


def model_width(role: Role) -> int:
    """Of its hidden states: that of the largest table, which is the vocabulary's."""
    return max(((weight.n, weight.k) for weight in role.weights if weight.looked_up), default=(0, 0))[1]
