"""`edgeformer doctor`: what this machine has, and what it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from edgeformer.cli.machine import Machine


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False) -> None:
    """Show the machine and its GPU, the packages, which backends can run here, and how to get the others.

    Of the vendors' libraries only the CUDA driver is asked, where cuda-python is installed. Nothing is changed; missing
    parts are no error.

    Example:
      edgeformer doctor
    """
    import dataclasses

    from edgeformer.cli import printing, requirements
    from edgeformer.cli.machine import this_machine
    from edgeformer.runtime import native

    machine, versions, backends = this_machine(), requirements.installed_versions(), look_at_backends()
    gpu, own = look_at_gpu(), native.instructions()
    extras: dict[str, dict[str, Any]] = {
        extra: {"missing": missing, "install": requirements.install_command(extra) if missing else None}
        for extra, missing in ((extra, requirements.missing(extra)) for extra in requirements.EXTRAS)
    }
    if as_json:
        found = {"machine": dataclasses.asdict(machine), "gpu": gpu, "own_operators": own, "packages": versions,
                 "backends": backends}  # fmt: skip
        printing.print_json({**found, "extras": extras})
        return
    printing.print_table(
        ["", ""], [*machine_rows(machine), ("own operators", own or native.unused() or ""), *gpu_rows(gpu)]
    )
    printing.print_table(["package", "version"], list(versions.items()))
    printing.print_table(["backend", "runs here"], [(name, reason or "yes") for name, reason in backends.items()])
    rows = [
        (extra, ", ".join(state["missing"]) or "nothing", state["install"] or "") for extra, state in extras.items()
    ]
    printing.print_table(["extra", "missing", "to get it"], rows)


def look_at_backends() -> dict[str, str | None]:
    """Every installed backend, and why it cannot run here, None where it can."""
    from importlib.metadata import entry_points

    from edgeformer.runtime.backends import ENTRY_POINTS

    found: dict[str, str | None] = {}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            found[point.name] = point.load()().unavailable()
        except Exception as error:  # whatever a broken installation raises is what is looked for here
            found[point.name] = f"it does not load: {type(error).__name__}: {error}"
    return found


def look_at_gpu() -> dict[str, Any]:
    """The GPU that engines would run on, or `reason`: why there is none; and TensorRT's modules that are installed."""
    from edgeformer.runtime.backends.tensorrt import driver, fitness
    from edgeformer.runtime.errors import EdgeformerError

    modules = {module: fitness.installed_version(module) for module in fitness.DISTRIBUTIONS}
    installed = {module: version for module, version in modules.items() if version is not None}
    try:
        device = driver.open_device()
        free, total = device.free_memory()
    except EdgeformerError as error:
        return {"tensorrt": installed, "reason": str(error)}
    return {
        "tensorrt": installed,
        "name": device.name,
        "compute_capability": device.compute_capability,
        "shares_memory": device.integrated,
        "cuda": device.driver_version,
        "free_bytes": free,
        "bytes": total,
    }


def gpu_rows(gpu: dict[str, Any]) -> list[tuple[str, Any]]:
    from edgeformer.cli.printing import size

    modules = ", ".join(f"{module} {version}" for module, version in gpu["tensorrt"].items()) or "none installed"
    if "reason" in gpu:
        return [("GPU for engines", gpu["reason"]), ("TensorRT", modules)]
    memory = f"{size(gpu['free_bytes'])} of {size(gpu['bytes'])} free"
    shared = ", shared with the CPU" if gpu["shares_memory"] else ""
    capability = f"compute capability {gpu['compute_capability']}, CUDA {gpu['cuda']}"
    return [("GPU for engines", f"{gpu['name']}, {capability}, {memory}{shared}"), ("TensorRT", modules)]


def machine_rows(machine: Machine) -> list[tuple[str, Any]]:
    from edgeformer.cli.printing import size

    return [
        ("Python", machine.python),
        ("system", f"{machine.os}, kernel {machine.kernel}"),
        ("CPU", f"{machine.cpu}, {machine.architecture}, {machine.cores} cores"),
        ("instructions", ", ".join(machine.instruction_sets) or "none that are looked for"),
        ("memory", "unknown" if machine.memory_bytes is None else size(machine.memory_bytes)),
        ("NVIDIA driver", machine.nvidia_driver or "none found"),
        ("GPUs", ", ".join(machine.gpus) or "none found"),
        *([("Jetson", machine.jetson)] if machine.jetson else []),
    ]
