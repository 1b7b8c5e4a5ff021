"""The process that builds: `python -m edgeformer.exporter.tensorrt.worker probe MODULE` or `build REQUEST`.

It answers on standard output, one JSON object a line. What TensorRT's libraries print there goes to standard error.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgeformer.exporter.tensorrt.requests import BuildRequest, Installed
from edgeformer.runtime.errors import EdgeformerError

Say = Callable[..., bool]  # sends an answer; False where no one listens any more


def main() -> None:
    say = answers()
    try:
        answer(say, *sys.argv[1:])
    except EdgeformerError as error:
        say(failed=str(error))
    except OSError as error:
        say(errno=error.errno or 0, reason=error.strerror or str(error))


def answers() -> Say:
    """Takes standard output for the answers alone."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()

    def say(**values: Any) -> bool:
        try:
            with lock:
                pipe.write(json.dumps(values) + "\n")
                pipe.flush()
        except BrokenPipeError:
            return False
        return True

    return say


def answer(say: Say, task: str, argument: str) -> None:
    request = BuildRequest.from_json(Path(argument).read_text(encoding="utf-8")) if task == "build" else None
    name = argument if request is None else request.module
    try:
        module = importlib.import_module(name)
        version = str(module.__version__)
    except (ImportError, OSError, AttributeError) as error:  # no package, no libraries of it, or its source alone
        say(unavailable=f"{error}")
        return
    if request is None:
        say(installed=dataclasses.asdict(Installed(name, version, gpu())))
        return
    from edgeformer.exporter.tensorrt.building import build

    built = build(module, version, request, lambda fraction, phase: say(fraction=fraction, phase=phase))
    say(built=dataclasses.asdict(built))


def gpu() -> str | None:
    """Compute capability of the first GPU, such as 8.9, as its driver says it; None without one."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, numbers = ctypes.c_int(), (ctypes.c_int(), ctypes.c_int())
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0):
        return None
    for attribute, number in zip((75, 76), numbers, strict=True):  # COMPUTE_CAPABILITY_MAJOR and _MINOR
        if cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device):
            return None
    return ".".join(str(number.value) for number in numbers)


if __name__ == "__main__":
    main()
