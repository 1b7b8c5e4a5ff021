"""What an engine is checked against before it is loaded: the graph that it was built from, and the machine."""

from __future__ import annotations

import hashlib
import platform

from edgeformer.runtime.bundle import Artifact


def graph_hash(portable: Artifact, role: str) -> str:
    """SHA-256 of a role's portable graph with its weights, from what the manifest records of their files.

    Args:
        portable: the bundle's artifact `onnx`.
        role: `encoder` or `decoder`.
    """
    others = {path for name, path in portable.graphs.items() if name != role}
    digest = hashlib.sha256()
    for path, record in sorted(portable.files.items()):
        if path not in others:
            digest.update(record.sha256.encode())
    return digest.hexdigest()


def this_platform() -> str:
    """Operating system and processor, such as linux-x86_64."""
    return f"{platform.system().lower()}-{platform.machine()}"
