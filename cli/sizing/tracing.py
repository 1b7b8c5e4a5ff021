"""The shape of a checkpoint's model: its family's module runs once on torch's meta device, which holds no numbers.

What is recorded is which parameters each operation takes, so that a matrix that serves as a table and as a product, or
in two graphs, is known to be one. No family is told from another here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from edgeformer.cli.sizing.shapes import Role, Shape, Weight
from edgeformer.exporter.encoder_graphs import describe_encoder, examples, sizes_of_encoder
from edgeformer.exporter.onnx_graphs import example, sizes_of
from edgeformer.models.checkpoint import leave_out, names_of, read_family, stored_as
from edgeformer.models.families import model_class, read_values
from edgeformer.models.protocols import kind_of
from edgeformer.models.weight_files import PICKLED, missing_files, open_weights, weight_paths
from edgeformer.runtime import names
from edgeformer.runtime.encoder_records import EncoderRecord
from edgeformer.runtime.names import Sizes

ONE = {"batch": 1, "q_len": 1, "n": 1, "capacity": 1, "source_len": 1}
META = "meta"


class Recorder(TorchFunctionMode):
    """Which parameters are multiplied, looked up in, or used otherwise, and how many attentions there are."""

    def __init__(self) -> None:
        super().__init__()
        self.multiplied, self.looked_up, self.used = dict[int, Tensor](), dict[int, Tensor](), dict[int, Tensor]()
        self.attentions = 0

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, given = getattr(function, "__name__", ""), (*args, *(kwargs or {}).values())
        for parameter in (value for value in given if isinstance(value, nn.Parameter)):
            multiplied = name == "linear" and parameter.dim() == 2
            (self.multiplied if multiplied else self.used)[id(parameter)] = parameter
        if name == "embedding":  # its table may be computed: sinusoids
            self.looked_up[id(args[1])] = args[1]
        self.attentions += name == "scaled_dot_product_attention"
        return function(*args, **(kwargs or {}))

    def role(self) -> Role:
        matrices = self.multiplied | self.looked_up
        weights = tuple(
            Weight(key, matrix.shape[1], matrix.shape[0], key in self.multiplied, key in self.looked_up)
            for key, matrix in matrices.items()
        )  # a linear map and a table are both (n, k)
        others = sum(value.numel() for key, value in self.used.items() if key not in matrices)
        return Role(weights, others, self.attentions)


def shape_of_checkpoint(folder: Path) -> Shape:
    """The shape of the model of a checkpoint folder; config.json is enough.

    Where there are safetensors, their headers decide what a checkpoint may do without.

    Raises:
        CheckpointError, ConfigError: the configuration cannot be read, or is of no family that is known here.
    """
    family, config = read_family(folder)
    with torch.device(META), torch.inference_mode():
        model: Any = model_class(family)(config).eval()
        take_out(model, stored_names(folder))
        kind = kind_of(model)
        record = describe_encoder(model) if kind == "encoder" else None
        sizes = sizes_of_encoder(model) if kind == "encoder" else sizes_of(model)
        roles = {role: record_role(call) for role, call in calls(model, sizes, record)}
    windows = getattr(config, "windows", None) or (None,) * sizes.num_layers
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Shape(read_values(folder)["model_type"], kind, sizes, record, roles, tuple(windows), parameters)


def stored_names(folder: Path) -> set[str]:
    """Names of the tensors that are there, by the headers alone; none where the files are old pickles or missing."""
    if not (folder / "config.json").is_file() or missing_files(folder):
        return set()
    if any(path.suffix == Path(PICKLED).suffix for path in weight_paths(folder)):
        return set()
    with open_weights(folder) as weights:
        return set(weights.names())


def take_out(model: nn.Module, stored: set[str]) -> None:
    """Let the model do without what its checkpoint does not hold; without files, without all that it can."""
    for name in model.state_dict():
        if not stored.intersection(names_of(model, stored_as(model, name))):
            leave_out(model, name)


def calls(model: Any, sizes: Sizes, record: EncoderRecord | None) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each graph's role, and what runs it once."""
    if record is not None:
        yield "encoder", lambda: model.encode(**examples(record, ONE, [1]))
        return
    inputs = [torch.zeros(example(dims, ONE), dtype=torch.long) for dims in names.step_inputs(sizes).values()]
    past = [torch.zeros(example(names.cache_shape(sizes), ONE)) for _ in names.past_names(sizes)]
    encoded = [torch.zeros(example(names.encoded_shape(sizes), ONE)) for _ in names.encoded_names(sizes)]
    if sizes.has_source:
        ids, lengths = (torch.zeros(example(dims, ONE), dtype=torch.long) for dims in names.encoder_inputs().values())
        yield "encoder", lambda: model.encode(ids, lengths)
    yield "decoder", lambda: model.step(*inputs, past, *([encoded] if sizes.has_source else []))


def record_role(call: Callable[[], object]) -> Role:
    recorder = Recorder()
    with recorder:
        call()
    return recorder.role()
