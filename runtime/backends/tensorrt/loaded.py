"""The engines of an artifact, one for each of its roles, loaded on this process' GPU."""

from __future__ import annotations

import importlib
import weakref
from importlib.util import find_spec
from typing import Any

from edgeformer.runtime import machine_memory, memory_needs, memory_plan
from edgeformer.runtime.backends.tensorrt import driver, fitness, runtime_cache
from edgeformer.runtime.backends.tensorrt.engines import DECODE, PLUGIN_FILES, LoadedEngine, load_module, make_logger
from edgeformer.runtime.backends.tensorrt.records import bounds_of_profiles, check_graphs, check_profiles, record_of
from edgeformer.runtime.bundle import ROLES, Artifact, Bundle
from edgeformer.runtime.errors import BackendUnavailableError, BundleError

PLUGINS = "edgeformer.runtime.plugins"


class LoadedEngines:
    """All that a kind of model shares with the others: engines, and contexts that work in one memory.

    Attributes:
        record: what its plans were built with and for.
        bounds: the most that the profiles take.
        by_role: the engines.
        activations: the memory that contexts work in, one after another.
    """

    def __init__(self, bundle: Bundle, artifact: Artifact) -> None:
        if reason := fitness.unfit(artifact):
            raise BackendUnavailableError(f"artifact {artifact.name} cannot run here: {reason}")
        self.bundle, self.artifact, self.record = bundle, artifact, record_of(artifact)
        roles = ROLES[bundle.manifest.kind]
        check_profiles(artifact.name, self.record, roles)
        check_graphs(bundle, artifact.name, self.record)
        self.bounds = bounds_of_profiles(self.record)
        self.device = driver.open_device()
        self.module = load_module(fitness.runs_with(self.record))
        self.logger = make_logger(self.module)
        with self.device.active():
            self.by_role = self.load(roles)
            size = driver.aligned(max(engine.activations for engine in self.by_role.values()))
            self.activations = driver.DeviceMemory(self.device, size)
        self.configs = {role: self.runtime_configs(role) for role in roles}

    def load(self, roles: tuple[str, ...]) -> dict[str, LoadedEngine]:
        if any(f"/{PLUGIN_FILES}" in path for path in self.artifact.files):
            load_plugins(self.bundle, self.artifact, self.module)
        self.runtime = self.module.Runtime(self.logger)
        if self.runtime is None:  # RTX, where something is wrong with the driver
            said = f": {self.logger.lines[-1]}" if self.logger.lines else ""
            raise BackendUnavailableError(f"{self.module.__name__} does not start{said}")
        engines = {
            role: LoadedEngine(self.module, self.runtime, self.logger, self.bundle, self.artifact, role)
            for role in roles
        }
        for engine in engines.values():
            self.stream_weights(engine, len(engines))
        return engines

    def stream_weights(self, engine: LoadedEngine, engines: int) -> None:
        """Leave weights in the host's memory where they do not fit beside all else, and the engine can stream them."""
        streamable = int(getattr(engine.engine, "streamable_weights_size", 0))
        free = machine_memory.free_memory(self.artifact)
        if not streamable or free is None:
            return
        manifest = self.bundle.manifest
        load = memory_plan.the_load(manifest, self.artifact, 1, None, None)
        needs = memory_needs.needed(manifest, self.artifact, load)
        room = free.bytes - (needs.total - needs.weights)
        if room < streamable:
            engine.engine.weight_streaming_budget_v2 = max(0, room // engines)

    def runtime_configs(self, role: str) -> Any:
        """Gives RTX's configuration for each profile, with the kernels that it compiled before; None elsewhere."""
        engine: Any = self.by_role[role].engine  # RTX has more than the stubs of TensorRT say
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

    def context(self, role: str, profile: int) -> Any:
        """A new execution context; the device is active."""
        work = (self.activations.address, self.activations.count)
        return self.by_role[role].context(profile, self.device, work, self.configs[role](profile))


def load_plugins(bundle: Bundle, artifact: Artifact, module: Any) -> None:
    """Register our own attention before an engine that uses it is read.

    Raises:
        BundleError: this edgeformer has no such plugin.
    """
    if find_spec(PLUGINS) is None:
        raise BundleError(f"artifact {artifact.name}", [f"its engines need {PLUGINS}: upgrade edgeformer"])
    importlib.import_module(PLUGINS).register(module, bundle.folder / artifact.name / PLUGIN_FILES)
