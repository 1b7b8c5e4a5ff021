"""An artifact's engines, loaded: they read sources and start rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeformer.runtime import machine_memory, memory_needs, memory_plan, names
from edgeformer.runtime.backends import Ints
from edgeformer.runtime.backends.tensorrt.engines import execute
from edgeformer.runtime.backends.tensorrt.loaded import LoadedEngines
from edgeformer.runtime.backends.tensorrt.records import most_wanted, widest_step
from edgeformer.runtime.backends.tensorrt.rows import TensorRTRows
from edgeformer.runtime.backends.tensorrt.stepping import Stepper, bind
from edgeformer.runtime.backends.tensorrt.workspace import Sources, Workspace
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.errors import InputError, NotEnoughMemoryError

MOST_SPARES = 4  # workspaces that are kept for later rows


class TensorRTExecutor:
    """The engines of an artifact that generates, on this process' GPU.

    Attributes:
        bounds: the most that the profiles take.
        widest: tokens of each row that one step takes at most.
        most_wanted: positions of each row whose logits one step gives at most.
        record: what its plans were built with and for.
    """

    def __init__(self, bundle: Bundle, artifact: Artifact) -> None:
        self.engines = engines = LoadedEngines(bundle, artifact)
        self.bundle, self.artifact, self.record, self.bounds = bundle, artifact, engines.record, engines.bounds
        self.sizes, self.pad = bundle.manifest.sizes, bundle.manifest.tokens.pad
        self.widest, self.most_wanted = widest_step(self.record), most_wanted(self.record)
        self.device, self.spares = engines.device, list[Workspace]()
        with self.device.active():
            self.encoder = engines.context("encoder", 0) if self.sizes.has_source else None
            decoder = engines.by_role["decoder"]
            self.stepper = Stepper(decoder, self.device, lambda profile: engines.context("decoder", profile))

    @property
    def notes(self) -> list[str]:
        """What whoever measures should know, such as why CUDA graphs are off."""
        return self.stepper.notes

    def start(self, sources: Sequence[Sequence[int]], capacity: int) -> TensorRTRows:
        lengths = np.array([len(source) for source in sources], np.int64)
        self.check_rows(len(sources), capacity)
        if self.bounds.source_len is not None and lengths.max() > self.bounds.source_len:
            raise InputError(
                f"an input has {lengths.max()} tokens, artifact {self.artifact.name} was built for "
                f"{self.bounds.source_len}: shorten it, or optimize the bundle for a longer source_len"
            )
        with self.device.active():
            work = self.take_workspace(len(sources), self.padded_source_len(int(lengths.max())))
            work.clear()
            assert work.sources is not None  # a language model starts with `start_empty`
            self.encode(work.sources, sources, lengths)
        return TensorRTRows(self, work, len(sources), capacity, lengths)

    def start_empty(self, batch: int, capacity: int) -> TensorRTRows:
        self.check_rows(batch, capacity)
        with self.device.active():
            work = self.take_workspace(batch, 0)
            work.clear()
        return TensorRTRows(self, work, batch, capacity, None)

    def padded_source_len(self, longest: int) -> int:
        least, _, most = self.record.profiles["encoder"][0]["source_len"]
        return max(least, memory_needs.source_bucket(longest, min(most, self.bounds.source_len or most)))

    def check_rows(self, batch: int, capacity: int) -> None:
        name, bounds = self.artifact.name, self.bounds
        if bounds.batch is not None and batch > bounds.batch:
            raise InputError(f"{batch} rows at once, artifact {name} takes {bounds.batch}: begin fewer")
        if bounds.capacity is not None and capacity > bounds.capacity:
            raise InputError(
                f"rows of {capacity} tokens were asked for, artifact {name} was built for {bounds.capacity}: "
                "ask for fewer, or optimize the bundle for a larger capacity"
            )

    def encode(self, memory: Sources, sources: Sequence[Sequence[int]], lengths: Ints) -> None:
        """Read the sources into memory, each padded to its length."""
        batch, texts = len(sources), memory.texts
        ids = texts.view(names.INPUT_IDS, (batch, memory.length))
        ids[...] = self.pad
        for row, source in zip(ids, sources, strict=True):
            row[: len(source)] = source
        texts.view(names.SOURCE_LENGTHS, (batch,))[...] = lengths
        bind(self.encoder, memory.binding(batch))
        texts.upload()
        execute(self.encoder, self.device.stream, self.engines.logger)
        self.device.synchronize()

    def take_workspace(self, batch: int, source_len: int) -> Workspace:
        """Memory for so many rows: that of earlier ones, or more.

        Raises:
            NotEnoughMemoryError: it is not there; the most that would fit is named.
            InputError: more rows than the engine takes.
        """
        if self.bounds.batch is not None and batch > self.bounds.batch:
            raise InputError(f"{batch} rows at once, artifact {self.artifact.name} takes {self.bounds.batch}")
        rows = memory_needs.row_count(batch, self.bounds.batch)
        for spare in self.spares:
            if (spare.rows, spare.source_len) == (rows, source_len):
                self.spares.remove(spare)
                return spare
        try:
            return self.make_workspace(rows, source_len)
        except NotEnoughMemoryError:
            while self.spares:  # others' memory may do
                self.drop(self.spares.pop())
            return self.make_workspace(rows, source_len)

    def make_workspace(self, rows: int, source_len: int) -> Workspace:
        free = machine_memory.free_memory(self.artifact)
        plan = memory_plan.plan_memory(
            self.bundle.manifest, self.artifact, batch=rows, source_len=source_len, free=free, loaded=True
        )
        memory_plan.require(plan)
        item, in_place = memory_needs.ITEM_BYTES[self.record.dtype], self.engines.by_role["decoder"].aliased
        return Workspace(self.device, self.sizes, item, rows, self.record.capacity, source_len, in_place)

    def give_workspace(self, work: Workspace) -> None:
        with self.device.active():
            self.spares.append(work)
            if len(self.spares) > MOST_SPARES:
                self.drop(self.spares.pop(0))

    def drop(self, work: Workspace) -> None:
        self.stepper.forget(work.number)
        work.close()
