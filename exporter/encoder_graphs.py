"""torch -> ONNX opset 24 for an encoder that does not write: one graph, with batch and sequence axes dynamic."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
import torch
from torch import Tensor, nn

from edgeformer.exporter.onnx_graphs import dynamic, example, export
from edgeformer.models.protocols import Encoder
from edgeformer.runtime import names
from edgeformer.runtime.encoder_records import EncoderRecord


class EncoderOnlyGraph(nn.Module):
    """An encoder with the inputs and outputs of its record, in their order."""

    def __init__(self, model: Encoder, record: EncoderRecord) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = model, list(record.inputs()), list(record.outputs())

    def forward(self, *given: Tensor) -> list[Tensor]:
        found = self.model.encode(**dict(zip(self.inputs, given, strict=True)))
        return [found[name] for name in self.outputs]


def describe_encoder(model: Encoder) -> EncoderRecord:
    """What the manifest says of an encoder, without samples."""
    config = model.config
    described = EncoderRecord(
        head=config.head,
        d_model=config.d_model,
        width=1,
        has_token_types=config.has_token_types,
        labels=tuple(config.labels),
        scoring=config.scoring,
    )
    with torch.inference_mode():
        found = model.encode(**examples(described, {"batch": 1, "source_len": 1, "n": 1}, [1]))
    return dataclasses.replace(described, width=found[described.output].shape[-1])


def sizes_of_encoder(model: Encoder) -> names.Sizes:
    config = model.config
    return names.Sizes(
        vocab_size=config.vocab_size,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_heads,
        head_dim=config.head_dim,
        max_positions=config.max_positions,
    )


def examples(record: EncoderRecord, extents: dict[str, int], lengths: list[int]) -> dict[str, Tensor]:
    """Inputs of these extents, all of them zeros but the lengths."""
    given = {name: torch.zeros(example(shape, extents), dtype=torch.long) for name, shape in record.inputs().items()}
    return given | {names.SOURCE_LENGTHS: torch.tensor(lengths)}


def export_encoder_only(model: Encoder, record: EncoderRecord) -> ir.Model:
    """The graph that `edgeformer.runtime.encoder_records` describes."""
    given = examples(record, {"batch": 2, "source_len": 7, "n": 3}, [7, 4])
    shapes = {"given": tuple(map(dynamic, record.inputs().values()))}
    graph = EncoderOnlyGraph(model, record)
    return export(graph, tuple(given.values()), shapes, list(record.inputs()), list(record.outputs()))
