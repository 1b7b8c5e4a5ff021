"""Which targets this machine can be asked for, and why it cannot be asked for the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from edgeformer.exporter.targets import TARGETS, Target, check_version, choose_target
from edgeformer.runtime.backends import backends
from edgeformer.runtime.backends.tensorrt import driver, fitness
from edgeformer.runtime.backends.tensorrt.driver import Device
from edgeformer.runtime.errors import BackendUnavailableError, TargetError
from edgeformer.runtime.identity import this_platform


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """An artifact to make and run.

    Attributes:
        target: name of the row.
        precision: how weights are stored.
        gpus: compute capabilities to build for; none where the builder takes the GPU that is here.
        reason: why it is not tried, None where it is.
    """

    target: str
    precision: str
    gpus: tuple[str, ...]
    reason: str | None

    @property
    def name(self) -> str:
        return f"{self.target}-{self.precision}"


def find_gpu() -> tuple[Device | None, str]:
    """The GPU that is here, or why there is none."""
    try:
        device = driver.open_device()
    except BackendUnavailableError as error:
        return None, str(error)
    return device, device.name


def trials(device: Device | None) -> Iterator[Trial]:
    """Everything for GPUs that the table of targets has for what is installed here."""
    for target in TARGETS.values():
        if target.backend == "ort-cpu" or this_platform() not in target.platforms or of_another_version(target):
            continue
        if target.jetson and device is not None and not device.integrated:
            continue
        reason = lacking(target, device)
        gpus = (device.compute_capability,) if device is not None and target.module == "tensorrt_rtx" else ()
        for precision in target.precisions:
            try:
                choose_target(target.name, precision, compute_capabilities=() if reason else gpus)
            except TargetError as error:
                if not reason:
                    yield Trial(target.name, precision, gpus, str(error))
                continue
            yield Trial(target.name, precision, gpus, reason)


def of_another_version(target: Target) -> bool:
    """Whether its module is installed in a version of another row."""
    version = fitness.installed_version(target.module) if target.module else None
    try:
        if version is not None:
            check_version(target, version)
    except TargetError:
        return True
    return False


def lacking(target: Target, device: Device | None) -> str | None:
    """What this machine lacks for a target."""
    if target.module is None:
        backend = backends().get(target.backend)
        return backend.unavailable() if backend is not None else f"there is no backend {target.backend}"
    if not fitness.is_installed(target.module):
        return f"{target.module} is not installed; {fitness.INSTALL[target.module]}"
    if (
        device is not None
        and target.compute_capabilities
        and device.compute_capability not in target.compute_capabilities
    ):
        return f"it is not for compute capability {device.compute_capability}"
    return None
