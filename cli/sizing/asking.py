"""From a model's folder and a device's name to the question that a plan answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgeformer.cli.sizing.device_rows import DEVICES
from edgeformer.cli.sizing.devices import THIS, Device, find_device
from edgeformer.cli.sizing.graphs import shape_of_bundle
from edgeformer.cli.sizing.planning import Question, load_of
from edgeformer.cli.sizing.shapes import Shape
from edgeformer.exporter.targets import Target, find_target
from edgeformer.runtime.bundle import MANIFEST, Bundle, read_manifest
from edgeformer.runtime.errors import CheckpointError, TargetError
from edgeformer.runtime.machine_memory import Free
from edgeformer.runtime.memory_needs import weight_bytes

CONFIG = "config.json"


def is_bundle(folder: Path) -> bool:
    """Whether it is a bundle, or a checkpoint's folder.

    Raises:
        CheckpointError: it is neither.
    """
    if (folder / MANIFEST).exists():
        return True
    if (folder / CONFIG).exists():
        return False
    what = f"it has neither {MANIFEST} nor {CONFIG}" if folder.is_dir() else "there is no such folder"
    raise CheckpointError(f"model {folder}", [f"{what}; expected a bundle, or a checkpoint's folder"])


def ask(
    folder: Path,
    device: str,
    *,
    target: str | None = None,
    batch: int = 1,
    capacity: int | None = None,
    source_len: int | None = None,
    free: Free | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Question:
    """What is asked, with all that is known about it.

    Args:
        folder: a bundle, or a checkpoint's folder.
        device: a name of the table, or `this`, which is measured.
        target: one of the device's; its first where it is None.
        batch, capacity, source_len: the load.
        free: memory for the model, where it is not to be the device's.
        progress: called with the name of each part of the work as it begins.

    Raises:
        OptionError: there is no such device, or the load makes no sense.
        TargetError: the device does not have this target.
        BundleError, CheckpointError, ConfigError: the model cannot be read.
    """
    row = None if device == THIS else find_device(device, DEVICES)
    bundle = Bundle(folder, read_manifest(folder)) if is_bundle(folder) else None
    shape = shape_of_bundle(bundle) if bundle else shape_of_config(folder)
    load = load_of(shape, batch, capacity, source_len)
    if row is None:
        from edgeformer.cli.sizing.this_machine import this_device

        progress("measuring what this machine reads and computes")
        row = this_device(shape)
    chosen = target_of(row, target)
    return Question(shape, row, chosen, load, free or free_of(row), built(bundle, chosen))


def shape_of_config(folder: Path) -> Shape:
    """The shape of a checkpoint; counting it takes torch.

    Raises:
        BackendUnavailableError: torch is not installed.
        CheckpointError, ConfigError: the configuration cannot be read.
    """
    from edgeformer.cli import requirements
    from edgeformer.models.families import family_of, read_values

    family_of(read_values(folder), str(folder / CONFIG))  # what is not known is told without waiting for torch
    requirements.require(requirements.TO_EXPORT, "planning a checkpoint that is no bundle yet")
    from edgeformer.cli.sizing.tracing import shape_of_checkpoint

    return shape_of_checkpoint(folder)


def target_of(device: Device, name: str | None) -> Target:
    """One of the device's targets, its first where no name is given.

    Raises:
        TargetError: the device does not have it, or nobody does.
    """
    found, _ = find_target(name or device.targets[0])
    if found.name not in device.targets:
        raise TargetError(f"--target is {name}, {device.name} has: {', '.join(device.targets)}")
    return found


def free_of(device: Device) -> Free | None:
    if device.usable is None:
        return None
    kind = "memory that CPU and GPU share" if device.shared else "memory"
    return Free(device.usable, f"{kind}, less what the system keeps" if device.reserve else kind)


def built(bundle: Bundle | None, target: Target) -> dict[str, tuple[str, int]]:
    """Names and weights of the artifacts that a bundle has of a target, by precision."""
    artifacts = bundle.manifest.artifacts if bundle else ()
    return {one.precision: (one.name, weight_bytes(one)) for one in artifacts if one.target == target.name}
