"""What is counted of a model: by hand, by its module without numbers, and by its portable graphs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.cli.sizing.graphs import shape_of_bundle
from edgeformer.cli.sizing.shapes import Shape
from edgeformer.cli.sizing.tracing import shape_of_checkpoint
from edgeformer.runtime.bundle import open_bundle

from ...models import decoder_families

LLAMA: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 128256, "hidden_size": 3072, "num_hidden_layers": 28,
    "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192,
    "max_position_embeddings": 131072, "tie_word_embeddings": True,
}  # fmt: skip
T5: dict[str, Any] = {
    "model_type": "t5", "vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8,
    "is_encoder_decoder": True,
}  # fmt: skip
BERT: dict[str, Any] = {
    "model_type": "bert", "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2, "architectures": ["BertModel"],
}  # fmt: skip


@pytest.fixture
def counted(tmp_path: Path) -> Callable[[dict[str, Any]], Shape]:
    """The shape of a configuration alone."""

    def count(config: dict[str, Any]) -> Shape:
        (tmp_path / "config.json").write_text(json.dumps(config))
        return shape_of_checkpoint(tmp_path)

    return count


def products(shape: Shape, role: str) -> int:
    return sum(weight.count for weight in shape.roles[role].products)


def test_llama_counted_by_hand(counted: Callable[[dict[str, Any]], Shape]) -> None:
    """Llama 3.2 3B: 3.21 billion weights, its vocabulary's among them once."""
    layer = 2 * 3072 * 3072 + 2 * 3072 * 1024 + 3 * 3072 * 8192
    vocabulary, gains = 128256 * 3072, (2 * 28 + 1) * 3072
    tied = counted(LLAMA)
    assert tied.parameters == 28 * layer + vocabulary + gains == 3_212_749_824
    assert products(tied, "decoder") == 28 * layer + vocabulary
    assert (tied.roles["decoder"].others, tied.roles["decoder"].attentions) == (gains, 28)
    assert [weight.looked_up for weight in tied.roles["decoder"].products if tied.is_head(weight)] == [True]
    apart = counted({**LLAMA, "tie_word_embeddings": False})
    assert apart.parameters == tied.parameters + vocabulary
    assert products(apart, "decoder") == products(tied, "decoder")


def test_t5_counted_by_hand(counted: Callable[[dict[str, Any]], Shape]) -> None:
    """T5-small: 60.5 million. Cross-attention's keys and values are products of the encoder's graph."""
    shape = counted(T5)
    attention, feed_forward, vocabulary = 4 * 512 * 512, 2 * 512 * 2048, 32128 * 512
    others = 2 * 32 * 8 + 512 * (6 * 2 + 6 * 3 + 2)
    assert shape.parameters == 6 * (attention + feed_forward) + 6 * (2 * attention + feed_forward) + vocabulary + others
    assert products(shape, "encoder") == 6 * (attention + feed_forward) + 6 * 2 * 512 * 512
    assert products(shape, "decoder") == 6 * (attention + 2 * 512 * 512 + feed_forward) + vocabulary
    assert (shape.roles["encoder"].attentions, shape.roles["decoder"].attentions) == (6, 12)


def test_bert_counted_by_hand(counted: Callable[[dict[str, Any]], Shape]) -> None:
    shape = counted(BERT)
    assert products(shape, "encoder") == 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    tables = (30522 + 512 + 2) * 768
    assert shape.parameters == products(shape, "encoder") + tables + shape.roles["encoder"].others
    assert shape.encoder is not None
    assert (shape.kind, shape.encoder.head, shape.encoder.width) == ("encoder", "hidden-states", 768)


def test_what_a_checkpoint_holds_decides_what_it_may_do_without(tmp_path: Path) -> None:
    """T5 is tied unless its files hold a projection of their own: their headers are looked at, no number is read."""
    import transformers

    config = transformers.T5Config(vocab_size=40, d_model=16, d_kv=4, d_ff=24, num_layers=1, num_heads=2)
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    tied = shape_of_checkpoint(tmp_path).parameters
    from safetensors.torch import load_file, save_file

    tensors = load_file(tmp_path / "model.safetensors")
    save_file({**tensors, "lm_head.weight": tensors["shared.weight"].clone()}, tmp_path / "model.safetensors")
    assert shape_of_checkpoint(tmp_path).parameters == tied + 40 * 16


def same(one: Shape, other: Shape) -> None:
    assert (one.kind, one.sizes, one.windows) == (other.kind, other.sizes, other.windows)
    for role in one.roles:
        for use in ("multiplied", "looked_up"):  # the exporter copies a small table that is both
            counts = [
                Counter((weight.k, weight.n) for weight in shape.roles[role].weights if getattr(weight, use))
                for shape in (one, other)
            ]
            assert counts[0] == counts[1]
        assert one.roles[role].attentions == other.roles[role].attentions


@pytest.mark.parametrize("variation", ["llama tied", "mistral window", "gpt2"])
def test_the_graphs_of_a_bundle_say_what_the_module_says(
    variation: str, tmp_path: Path, exported: Callable[[Path, int], Path]
) -> None:
    checkpoint = tmp_path / "checkpoint"
    decoder_families.save(variation, checkpoint)
    bundle = exported(checkpoint, decoder_families.SIZES["vocab_size"])
    same(shape_of_checkpoint(checkpoint), shape_of_bundle(open_bundle(bundle)))


def test_so_do_those_of_an_encoder_decoder(tiny_checkpoint: Path, tiny_bundle: Path) -> None:
    """Tables that both sides share are one."""
    counted, read = shape_of_checkpoint(tiny_checkpoint), shape_of_bundle(open_bundle(tiny_bundle))
    same(counted, read)
    keys = [{weight.key for weight in role.weights if weight.looked_up} for role in read.roles.values()]
    assert keys[0] & keys[1]


def test_so_do_those_of_an_encoder(
    encoder_checkpoint: Callable[[str], Path], encoder_bundle: Callable[[str], Path]
) -> None:
    from ...encoder_checkpoints import ENCODERS

    kind = next(iter(ENCODERS))
    same(shape_of_checkpoint(encoder_checkpoint(kind)), shape_of_bundle(open_bundle(encoder_bundle(kind))))
