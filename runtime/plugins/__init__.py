"""Our own attention in TensorRT engines: its kernels, launched without a compiler, and the plugins around them.

`register(tensorrt, folder / "kernels")` comes before an engine with our operators is built or read.
"""

from __future__ import annotations

from edgeformer.runtime.plugins.registering import register
from edgeformer.runtime.plugins.tensorrt_plugin import allow_aliases, plugin_classes

__all__ = ["allow_aliases", "plugin_classes", "register"]
