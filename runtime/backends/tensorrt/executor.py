"""An artifact's engines, loaded: they read sources and start rows."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from edgeformer.runtime import memory_plan, names
from edgeformer.runtime.backends import Ints
from edgeformer.runtime.backends.tensorrt import driver, fitness, runtime_cache
from edgeformer.runtime.backends.tensorrt.engines import (
    DECODE,
    PLUGIN_FILES,
    LoadedEngine,
    execute,
    load_module,
    make_logger,
)
from edgeformer.runtime.backends.tensorrt.records import (
    bounds_of_profiles,
    check_graphs,
    check_profiles,
    record_of,
    widest_step,
)
from edgeformer.runtime.backends.tensorrt.rows import TensorRTRows
from edgeformer.runtime.backends.tensorrt.stepping import Stepper, bind
from edgeformer.runtime.backends.tensorrt.workspace import Workspace
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.errors import BackendUnavailableError, BundleError, InputError, NotEnoughMemoryError

MOST_SPARES = 4  # workspaces that are kept for later rows
PLUGINS = "edgeformer.runtime.plugins"


class TensorRTExecutor:
    """Both engines of an artifact on this process' GPU.

    Attributes:
        bounds: the most that the profiles take.
        widest: tokens of each row that one step takes at most.
        record: what its plans were built with and for.
    """

    def __init__(self, bundle: Bundle, artifact: Artifact) -> None:
        if reason := fitness.unfit(artifact):
            raise BackendUnavailableError(f"artifact {artifact.name} cannot run here: {reason}")
        self.bundle, self.artifact, self.record = bundle, artifact, record_of(artifact)
        self.sizes, self.pad = bundle.manifest.sizes, bundle.manifest.tokens.pad
        check_profiles(artifact.name, self.record)
        check_graphs(bundle, artifact.name, self.record)
        self.bounds, self.widest = bounds_of_profiles(self.record), widest_step(self.record)
        self.device = driver.open_device()
        self.module = load_module(fitness.runs_with(self.record))
        self.logger = make_logger(self.module)
        self.spares: list[Workspace] = []
        with self.device.active():
            self.load_engines()
            self.make_contexts()

    @property
    def notes(self) -> list[str]:
        """What whoever measures should know, such as why CUDA graphs are off."""
        return self.stepper.notes

    def load_engines(self) -> None:
        if any(f"/{PLUGIN_FILES}" in path for path in self.artifact.files):
            load_plugins(self.bundle, self.artifact, self.module)
        self.runtime = self.module.Runtime(self.logger)
        if self.runtime is None:  # RTX, where something is wrong with the driver
            said = f": {self.logger.lines[-1]}" if self.logger.lines else ""
            raise BackendUnavailableError(f"{self.module.__name__} does not start{said}")
        self.engines = {
            role: LoadedEngine(self.module, self.runtime, self.logger, self.bundle, self.artifact, role)
            for role in ("encoder", "decoder")
        }
        for engine in self.engines.values():
            self.stream_weights(engine)

    def stream_weights(self, engine: LoadedEngine) -> None:
        """Leave weights in the host's memory where they do not fit beside all else, and the engine can stream them."""
        streamable = int(getattr(engine.engine, "streamable_weights_size", 0))
        free = memory_plan.free_memory(self.artifact)
        if not streamable or free is None:
            return
        load = memory_plan.the_load(self.sizes, self.artifact, 1, None, None)
        needs = memory_plan.needed(self.sizes, self.artifact, load)
        room = free.bytes - (needs.total - needs.weights)
        if room < streamable:
            engine.engine.weight_streaming_budget_v2 = max(0, room // len(self.engines))

    def make_contexts(self) -> None:
        size = driver.aligned(max(engine.activations for engine in self.engines.values()))
        self.activations = driver.DeviceMemory(self.device, size)
        configs = {role: self.runtime_configs(role) for role in self.engines}
        work = (self.activations.address, self.activations.count)

        def context(role: str, profile: int) -> Any:
            return self.engines[role].context(profile, self.device, work, configs[role](profile))

        self.encoder = context("encoder", 0)
        self.stepper = Stepper(self.engines["decoder"], self.device, lambda profile: context("decoder", profile))

    def runtime_configs(self, role: str) -> Any:
        """Gives RTX's configuration for each profile, with the kernels that it compiled before; None elsewhere."""
        engine: Any = self.engines[role].engine  # RTX has more than the stubs of TensorRT say
        module = self.module
        if not hasattr(module, "DynamicShapesKernelSpecializationStrategy"):
            return lambda profile: None
        cache = engine.create_runtime_config().create_runtime_cache()
        files = runtime_cache.places(self.bundle, self.artifact, role)
        runtime_cache.read(files, cache)
        weakref.finalize(self, runtime_cache.write, files, cache)
        strategies = module.DynamicShapesKernelSpecializationStrategy

        def config(profile: int) -> Any:
            made = engine.create_runtime_config()
            made.set_execution_context_allocation_strategy(module.ExecutionContextAllocationStrategy.USER_MANAGED)
            made.set_runtime_cache(cache)
            # What is captured stays: decoding waits for its kernels instead of beginning with ones for any shape.
            decodes = role == "decoder" and profile == DECODE
            made.dynamic_shapes_kernel_specialization_strategy = strategies.EAGER if decodes else strategies.LAZY
            return made

        return config

    def start(self, sources: Sequence[Sequence[int]], capacity: int) -> TensorRTRows:
        lengths = np.array([len(source) for source in sources], np.int64)
        self.check_start(lengths, capacity)
        with self.device.active():
            work = self.take_workspace(len(sources), self.padded_source_len(int(lengths.max())))
            work.clear()
            self.encode(work, sources, lengths)
        return TensorRTRows(self, work, lengths, capacity)

    def padded_source_len(self, longest: int) -> int:
        least, _, most = self.record.profiles["encoder"][0]["source_len"]
        return max(least, memory_plan.source_bucket(longest, min(most, self.bounds.source_len or most)))

    def check_start(self, lengths: Ints, capacity: int) -> None:
        name, bounds = self.artifact.name, self.bounds
        if bounds.batch is not None and len(lengths) > bounds.batch:
            raise InputError(f"{len(lengths)} rows at once, artifact {name} takes {bounds.batch}: begin fewer")
        if bounds.source_len is not None and lengths.max() > bounds.source_len:
            raise InputError(
                f"an input has {lengths.max()} tokens, artifact {name} was built for {bounds.source_len}: "
                "shorten it, or optimize the bundle for a longer source_len"
            )
        if bounds.capacity is not None and capacity > bounds.capacity:
            raise InputError(
                f"rows of {capacity} tokens were asked for, artifact {name} was built for {bounds.capacity}: "
                "ask for fewer, or optimize the bundle for a larger capacity"
            )

    def encode(self, work: Workspace, sources: Sequence[Sequence[int]], lengths: Ints) -> None:
        """Read the sources into a workspace, each padded to the workspace's source_len."""
        batch = len(sources)
        ids = work.texts.view(names.INPUT_IDS, (batch, work.source_len))
        ids[...] = self.pad
        for row, source in zip(ids, sources, strict=True):
            row[: len(source)] = source
        work.texts.view(names.SOURCE_LENGTHS, (batch,))[...] = lengths
        bind(self.encoder, work.encoder_binding(batch))
        work.texts.upload()
        execute(self.encoder, self.device.stream, self.logger)
        self.device.synchronize()

    def take_workspace(self, batch: int, source_len: int) -> Workspace:
        """Memory for so many rows: that of earlier ones, or more.

        Raises:
            NotEnoughMemoryError: it is not there; the most that would fit is named.
            InputError: more rows than the engine takes.
        """
        if self.bounds.batch is not None and batch > self.bounds.batch:
            raise InputError(f"{batch} rows at once, artifact {self.artifact.name} takes {self.bounds.batch}")
        rows = memory_plan.row_count(batch, self.bounds.batch)
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
        free = memory_plan.free_memory(self.artifact)
        plan = memory_plan.plan_memory(
            self.bundle.manifest, self.artifact, batch=rows, source_len=source_len, free=free, loaded=True
        )
        memory_plan.require(plan)
        item, in_place = memory_plan.ITEM_BYTES[self.record.dtype], self.engines["decoder"].aliased
        return Workspace(self.device, self.sizes, item, rows, self.record.capacity, source_len, in_place)

    def give_workspace(self, work: Workspace) -> None:
        with self.device.active():
            self.spares.append(work)
            if len(self.spares) > MOST_SPARES:
                self.drop(self.spares.pop(0))

    def drop(self, work: Workspace) -> None:
        self.stepper.forget(work.number)
        work.close()


def load_plugins(bundle: Bundle, artifact: Artifact, module: Any) -> None:
    """Register our own attention before an engine that uses it is read.

    Raises:
        BundleError: this edgeformer has no such plugin.
    """
    if find_spec(PLUGINS) is None:
        raise BundleError(f"artifact {artifact.name}", [f"its engines need {PLUGINS}: upgrade edgeformer"])
    importlib.import_module(PLUGINS).register(module, bundle.folder / artifact.name / PLUGIN_FILES)
