"""An encoder's engine: texts go in, hidden states and what the head makes of them come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgeformer.runtime import machine_memory, memory_plan, names
from edgeformer.runtime.backends import Floats, Ints
from edgeformer.runtime.backends.tensorrt.engines import execute
from edgeformer.runtime.backends.tensorrt.loaded import LoadedEngines
from edgeformer.runtime.backends.tensorrt.stepping import Binding, bind
from edgeformer.runtime.backends.tensorrt.stores import Block
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.encoder_records import EncoderRecord
from edgeformer.runtime.errors import InputError
from edgeformer.runtime.names import Dims

Extents = Mapping[str, int]  # of every symbolic dimension
BOUNDED = {"source_len": (names.INPUT_IDS, "tokens"), "n": (names.LOGITS_AT, "positions to fill")}


class TensorRTEncoder:
    """The engine of an encoder on this process' GPU; callers in several threads take turns.

    Attributes:
        bounds: the most that its profile takes; of more rows than that, some are read after others.
    """

    def __init__(self, bundle: Bundle, artifact: Artifact, record: EncoderRecord) -> None:
        self.bundle, self.artifact = bundle, artifact
        self.inputs, self.outputs = record.inputs(), record.outputs()
        self.engines = LoadedEngines(bundle, artifact)
        self.device, self.bounds = self.engines.device, self.engines.bounds
        (self.profile,) = self.engines.record.profiles["encoder"]
        self.blocks: dict[str, Block] = {}  # of every input and output, as large as any so far
        with self.device.active():
            self.context = self.engines.context("encoder", 0)

    def run(self, given: Mapping[str, Ints], wanted: Sequence[str]) -> dict[str, Floats]:
        """Some outputs for all inputs, as `edgeformer.runtime.backends.encoding.EncoderExecutor` says.

        Raises:
            InputError: an input is longer than the profile takes, or has more positions to fill.
            NotEnoughMemoryError: the GPU has no room for so many.
        """
        self.check(given)
        most = self.profile["batch"][2]
        with self.device.active():
            parts = [
                self.run_rows({name: array[first : first + most] for name, array in given.items()}, wanted)
                for first in range(0, len(given[names.INPUT_IDS]), most)
            ]
        return {name: np.concatenate([part[name] for part in parts]) for name in wanted}

    def check(self, given: Mapping[str, Ints]) -> None:
        for dim, (name, what) in BOUNDED.items():
            most = self.profile[dim][2] if name in given else 0
            if name in given and given[name].shape[1] > most:
                raise InputError(
                    f"an input has {given[name].shape[1]} {what}, artifact {self.artifact.name} was built for {most}: "
                    "shorten it, or optimize the bundle for a longer source_len"
                )

    def run_rows(self, given: Mapping[str, Ints], wanted: Sequence[str]) -> dict[str, Floats]:
        """At most as many rows as the profile takes, at once."""
        rows, source_len = given[names.INPUT_IDS].shape
        positions = given[names.LOGITS_AT].shape[1] if names.LOGITS_AT in given else 1
        extents = {"batch": rows, "source_len": max(source_len, self.profile["source_len"][0]), "n": positions}
        self.reserve(extents)
        for name, array in given.items():
            view = self.blocks[name].view(name, shape(self.inputs[name], extents))
            view[...] = 0  # any id will do behind a row's length
            view[tuple(map(slice, array.shape))] = array
            self.blocks[name].upload()
        shapes = {name: shape(dims, extents) for name, dims in self.inputs.items()}
        bind(self.context, Binding(shapes, {name: block.address(name) for name, block in self.blocks.items()}))
        execute(self.context, self.device.stream, self.engines.logger)
        for name in wanted:
            self.blocks[name].download()
        self.device.synchronize()
        found = {name: self.blocks[name].view(name, shape(self.outputs[name], extents)) for name in wanted}
        return {
            name: (array[:, :source_len] if "source_len" in self.outputs[name] else array).copy()
            for name, array in found.items()
        }

    def reserve(self, extents: Extents) -> None:
        """Memory for so many numbers of every input and output.

        Raises:
            NotEnoughMemoryError: it is not there; the most that would fit is named.
        """
        dims = self.inputs | self.outputs
        counts = {name: int(np.prod(shape(each, extents))) for name, each in dims.items()}
        held = {name: block.dtypes[name].itemsize * counts[name] <= block.count for name, block in self.blocks.items()}
        if held and all(held.values()):
            return
        plan = memory_plan.plan_memory(
            self.bundle.manifest, self.artifact, batch=extents["batch"], source_len=extents["source_len"],
            free=machine_memory.free_memory(self.artifact), loaded=True,
        )  # fmt: skip
        memory_plan.require(plan)
        for name, count in counts.items():
            if not held.get(name):
                if name in self.blocks:
                    self.blocks.pop(name).close()
                self.blocks[name] = Block(self.device, {name: (np.int64 if name in self.inputs else np.float32, count)})


def shape(dims: Dims, extents: Extents) -> tuple[int, ...]:
    return tuple(extents[dim] if isinstance(dim, str) else dim for dim in dims)
