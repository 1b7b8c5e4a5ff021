"""torch -> ONNX opset 24: the encoder graph and the step graph, with every sequence axis dynamic."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from onnxscript.values import Opset
from torch import Tensor, nn
from torch.export import Dim

from edgeformer.models.transformer import Transformer
from edgeformer.runtime import names

OPSET_VERSION = 24
OPSET = Opset("", OPSET_VERSION)


def sizes_of(model: Transformer) -> names.Sizes:
    config = model.config
    return names.Sizes(
        vocab_size=config.vocab_size,
        num_layers=config.num_decoder_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_heads,
        head_dim=config.head_dim,
        max_positions=config.max_positions,
    )


class EncoderGraph(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, source_lengths: Tensor) -> list[Tensor]:
        return self.model.encode(input_ids, source_lengths)


class StepGraph(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        cache_lengths: Tensor,
        logits_at: Tensor,
        source_lengths: Tensor,
        past_key_values: Sequence[Tensor],
        encoder_key_values: Sequence[Tensor],
    ) -> tuple[Tensor, list[Tensor]]:
        return self.model.step(input_ids, cache_lengths, logits_at, source_lengths, past_key_values, encoder_key_values)


def dynamic(shape: names.Dims) -> dict[int, Any]:
    """torch.export's notation for the axes that have a name; equal names become one symbolic dimension."""
    return {axis: Dim(dim) for axis, dim in enumerate(shape) if isinstance(dim, str)}


def example(shape: names.Dims, extents: dict[str, int]) -> list[int]:
    return [extents[dim] if isinstance(dim, str) else dim for dim in shape]


def export_encoder(model: Transformer) -> ir.Model:
    """The encoder graph: (input_ids, source_lengths) -> encoder_key_values.{i}.key|value."""
    inputs = names.encoder_inputs()
    arguments = (torch.zeros(2, 7, dtype=torch.long), torch.tensor([7, 4]))
    shapes = {name: dynamic(shape) for name, shape in inputs.items()}
    return export(EncoderGraph(model), arguments, shapes, list(inputs), names.encoded_names(sizes_of(model)))


def export_step(model: Transformer) -> ir.Model:
    """The step graph of `edgeformer.runtime.names`."""
    sizes, inputs = sizes_of(model), names.step_inputs()
    dtype = next(model.parameters()).dtype
    extents = {"batch": 2, "q_len": 5, "n": 3, "capacity": 16, "source_len": 7}
    past = [torch.zeros(example(names.cache_shape(sizes), extents), dtype=dtype) for _ in names.past_names(sizes)]
    encoded = [torch.zeros(example(names.encoded_shape(sizes), extents), dtype=dtype) for _ in past]
    integers = [torch.zeros(example(shape, extents), dtype=torch.long) for shape in inputs.values()]
    integers[-1] = torch.tensor([7, 4])
    shapes: dict[str, Any] = {name: dynamic(shape) for name, shape in inputs.items()}
    shapes["past_key_values"] = [dynamic(names.cache_shape(sizes))] * len(past)
    shapes["encoder_key_values"] = [dynamic(names.encoded_shape(sizes))] * len(past)
    return export(
        StepGraph(model),
        (*integers, past, encoded),
        shapes,
        [*inputs, *names.past_names(sizes), *names.encoded_names(sizes)],
        [names.LOGITS, *names.present_names(sizes)],
    )


def export(
    module: nn.Module, arguments: tuple[Any, ...], shapes: dict[str, Any], inputs: list[str], outputs: list[str]
) -> ir.Model:
    with torch.no_grad(), silence():
        program = torch.onnx.export(
            module.eval(),
            arguments,
            dynamo=True,
            opset_version=OPSET_VERSION,
            dynamic_shapes=shapes,
            custom_translation_table={torch.ops.edgeformer.write_cache.default: write_cache_onnx},
            input_names=inputs,
            output_names=outputs,
            verbose=False,
        )
    if program is None:
        raise RuntimeError("torch.onnx.export returned nothing")
    # Where each node came from in Python: stack traces with paths of this machine, and most of a small graph's size.
    ClearMetadataAndDocStringPass()(program.model)
    return program.model


def write_cache_onnx(cache: Any, update: Any, cache_lengths: Any) -> Any:
    return OPSET.TensorScatter(cache, update, cache_lengths, axis=-2, mode="linear")


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keep the exporter's chatter about axis names and absent packages out of the user's sight; errors still raise."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
