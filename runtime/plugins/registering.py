"""Registering the plugins with TensorRT, once in a process whatever the number of artifacts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from edgeformer.runtime.errors import BackendUnavailableError
from edgeformer.runtime.plugins.kernels import CACHED, SOURCE
from edgeformer.runtime.plugins.launching import Launcher
from edgeformer.runtime.plugins.tensorrt_plugin import NAMESPACE, AttentionCreator, plugin_classes

REGISTERING = threading.Lock()
LAUNCHERS: dict[str, Launcher] = {}  # by TensorRT module: its registry is one a process
CREATORS: list[AttentionCreator] = []  # TensorRT keeps no reference


def register(trt: Any, folder: Path) -> Launcher:
    """Make TensorRT know our operators, and where kernels are that compute them. Asks for neither driver nor GPU.

    Args:
        trt: `tensorrt` or `tensorrt_lean`; TensorRT-RTX has no plugins.
        folder: kernels that `edgeformer.exporter.kernels.compiling.write_kernels` wrote.

    Raises:
        BackendUnavailableError: the module takes no plugins, or something else has taken our names.
        BundleError: the folder has no kernels, or its index is damaged.
    """
    if not hasattr(trt, "IPluginV3"):
        raise BackendUnavailableError(
            f"{trt.__name__} {trt.__version__} takes no plugins of this kind: TensorRT 10.0 and later do; "
            "choose another form of attention"
        )
    with REGISTERING:
        launcher = LAUNCHERS.get(trt.__name__) or Launcher()
        launcher.add_folder(folder)
        if trt.__name__ not in LAUNCHERS:
            register_creators(trt, launcher)
            LAUNCHERS[trt.__name__] = launcher
        return launcher


def register_creators(trt: Any, launcher: Launcher) -> None:
    registry, creator_class = trt.get_plugin_registry(), plugin_classes(trt)
    for operator in (CACHED, SOURCE):
        creator = creator_class(operator, launcher)
        if not registry.register_creator(creator, NAMESPACE):
            raise BackendUnavailableError(
                f"{trt.__name__} has another plugin {NAMESPACE}::{operator} already: start a process without it"
            )
        CREATORS.append(creator)
