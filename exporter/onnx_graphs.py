"""torch -> ONNX opset 24: the encoder graph and the step graph, with every sequence axis dynamic."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from onnxscript.values import Opset
from torch import Tensor, nn
from torch.export import Dim

from edgeformer.models.cache import write_cache
from edgeformer.models.protocols import kind_of
from edgeformer.runtime import names

OPSET_VERSION = 24
OPSET = Opset("", OPSET_VERSION)


def sizes_of(model: Any) -> names.Sizes:
    """The sizes of a module of `edgeformer.models.protocols` that generates."""
    config, source = model.config, {}
    if kind_of(model) == "encoder-decoder":
        source = {name: getattr(config, name) for name in ("source_vocab_size", "max_source_positions")}
    return names.Sizes(
        vocab_size=config.vocab_size,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        max_positions=config.max_positions,
        **source,
    )


class EncoderGraph(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, source_lengths: Tensor) -> list[Tensor]:
        encoded: list[Tensor] = self.model.encode(input_ids, source_lengths)
        return encoded


class StepGraph(nn.Module):
    """The step of a model that reads a source."""

    def __init__(self, model: Any) -> None:
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
        logits, present = self.model.step(
            input_ids, cache_lengths, logits_at, source_lengths, past_key_values, encoder_key_values
        )
        return logits, present


class LanguageModelStepGraph(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, cache_lengths: Tensor, logits_at: Tensor, past_key_values: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        logits, present = self.model.step(input_ids, cache_lengths, logits_at, past_key_values)
        return logits, present


def dynamic(shape: names.Dims) -> dict[int, Any]:
    """torch.export's notation for the axes that have a name; equal names become one symbolic dimension."""
    return {axis: Dim(dim) for axis, dim in enumerate(shape) if isinstance(dim, str)}


def example(shape: names.Dims, extents: dict[str, int]) -> list[int]:
    return [extents[dim] if isinstance(dim, str) else dim for dim in shape]


def export_graphs(model: nn.Module, on_part: Callable[[str], None] = lambda part: None) -> dict[str, ir.Model]:
    """The graphs of a module that generates, by their roles.

    Args:
        on_part: called with what is exported, as it begins.
    """
    graphs = {}
    if kind_of(model) == "encoder-decoder":
        on_part("exporting the encoder")
        graphs["encoder"] = export_encoder(model)
    on_part("exporting the step graph")
    graphs["decoder"] = export_step(model)
    return graphs


def export_encoder(model: nn.Module) -> ir.Model:
    """The encoder graph: (input_ids, source_lengths) -> encoder_key_values.{i}.key|value."""
    inputs = names.encoder_inputs()
    arguments = (torch.zeros(2, 7, dtype=torch.long), torch.tensor([7, 4]))
    shapes = {name: dynamic(shape) for name, shape in inputs.items()}
    return export(EncoderGraph(model), arguments, shapes, list(inputs), names.encoded_names(sizes_of(model)))


def export_step(model: nn.Module) -> ir.Model:
    """The step graph of `edgeformer.runtime.names`."""
    sizes = sizes_of(model)
    inputs = names.step_inputs(sizes)
    dtype = next(model.parameters()).dtype
    extents = {"batch": 2, "q_len": 5, "n": 3, "capacity": 16, "source_len": 7}
    integers = {name: torch.zeros(example(shape, extents), dtype=torch.long) for name, shape in inputs.items()}
    shapes: dict[str, Any] = {name: dynamic(shape) for name, shape in inputs.items()}
    tensors = {"past_key_values": (names.past_names(sizes), names.cache_shape(sizes))}
    if sizes.has_source:
        integers[names.SOURCE_LENGTHS] = torch.tensor([7, 4])
        tensors["encoder_key_values"] = (names.encoded_names(sizes), names.encoded_shape(sizes))
    lists = []
    for argument, (of_layers, shape) in tensors.items():
        lists.append([torch.zeros(example(shape, extents), dtype=dtype) for _ in of_layers])
        shapes[argument] = [dynamic(shape)] * len(of_layers)
    return export(
        StepGraph(model) if sizes.has_source else LanguageModelStepGraph(model),
        (*integers.values(), *lists),
        shapes,
        [*inputs, *names.past_names(sizes), *names.encoded_names(sizes)],
        [names.LOGITS, *names.present_names(sizes)],
    )


def export(
    module: nn.Module, arguments: tuple[Any, ...], shapes: dict[str, Any], inputs: list[str], outputs: list[str]
) -> ir.Model:
    with torch.no_grad(), quiet() as said:
        try:
            program = torch.onnx.export(
                module.eval(),
                arguments,
                dynamo=True,
                opset_version=OPSET_VERSION,
                dynamic_shapes=shapes,
                custom_translation_table={write_cache._opoverload: write_cache_onnx},
                input_names=inputs,
                output_names=outputs,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            raise UntraceableError(said.getvalue()) from error
    if program is None:
        raise RuntimeError("torch.onnx.export returned nothing")
    # Where each node came from in Python: stack traces with paths of this machine, and most of a small graph's size.
    ClearMetadataAndDocStringPass()(program.model)
    return program.model


class UntraceableError(RuntimeError):
    """torch cannot export a module; its cause says why.

    Args:
        said: what torch printed and logged before.
    """

    def __init__(self, said: str) -> None:
        super().__init__("torch cannot export this module")
        self.said = said


def write_cache_onnx(cache: Any, update: Any, cache_lengths: Any) -> Any:
    return OPSET.TensorScatter(cache, update, cache_lengths, axis=-2, mode="linear")


@contextlib.contextmanager
def quiet() -> Iterator[io.StringIO]:
    """Keep the exporter's chatter about axis names and absent packages out of the user's sight; errors still raise.

    What it says goes into the text that this gives.
    """
    said = io.StringIO()
    names_of_torch = {"torch", *(name for name in logging.root.manager.loggerDict if name.startswith("torch."))}
    loggers = [logging.getLogger(name) for name in names_of_torch]
    before = [
        (logger, logger.handlers, logger.propagate) for logger in loggers if logger.handlers or logger.name == "torch"
    ]
    try:
        for logger, _, _ in before:
            logger.handlers, logger.propagate = [logging.StreamHandler(said)], False
        with warnings.catch_warnings(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            warnings.simplefilter("ignore")
            yield said
    finally:
        for logger, handlers, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate
