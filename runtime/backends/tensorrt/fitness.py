"""Whether an engine runs on this machine: its record against the library, the GPU and the platform, before it is read.

TensorRT itself answers a plan of another version or GPU with a log line or a crash; here both sides are named.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec

from edgeformer.runtime.backends import older
from edgeformer.runtime.backends.tensorrt import driver
from edgeformer.runtime.bundle import Artifact, Engine
from edgeformer.runtime.errors import BackendUnavailableError
from edgeformer.runtime.identity import this_platform

# Distributions that bring each module, and how to get it; JetPack brings `tensorrt` as a Debian package.
DISTRIBUTIONS = {
    "tensorrt": ("tensorrt", "tensorrt-cu13", "tensorrt-cu12"),
    "tensorrt_rtx": ("tensorrt-rtx", "tensorrt-rtx-cu13", "tensorrt-rtx-cu12"),
    "tensorrt_lean": ("tensorrt-lean", "tensorrt-lean-cu13", "tensorrt-lean-cu12"),
}
INSTALL = {
    "tensorrt": "pip install 'edgeformer[gpu]'",
    "tensorrt_rtx": "pip install 'edgeformer[rtx]'",
    "tensorrt_lean": "pip install tensorrt-lean-cu13",
}
LEAN = "tensorrt_lean"


def is_installed(module: str) -> bool:
    """Whether a module can be imported; a folder of type stubs alone has no code to import."""
    try:
        spec = find_spec(module)
    except ValueError:  # a module put there by hand
        return True
    return spec is not None and spec.origin is not None


def installed_version(module: str) -> str | None:
    """Version of the distribution that brought a module, None where its metadata is not there."""
    for distribution in DISTRIBUTIONS[module]:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def runs_with(engine: Engine) -> str:
    """The module to run an engine with: the one that built it, or the lean runtime where that one is not here.

    Version-compatible plans are built without a runtime of their own, which nobody would have to execute then; such a
    plan runs on the lean runtime of its own version.
    """
    if engine.module == "tensorrt" and engine.version_compatible and not has(engine.module, engine.version):
        return LEAN if has(LEAN, engine.version) else "tensorrt"
    return engine.module


def has(module: str, version: str) -> bool:
    """Whether a module is installed in this version, as far as anybody knows."""
    installed = installed_version(module)
    return is_installed(module) and (installed is None or same_version(installed, version))


def unavailable() -> str | None:
    """Why no engine at all can run here, and what to do about it; None if some can."""
    if not any(map(is_installed, DISTRIBUTIONS)):
        ways = f"{INSTALL['tensorrt']} for servers and Jetsons, {INSTALL['tensorrt_rtx']} for GeForce and RTX GPUs"
        return f"neither tensorrt nor tensorrt_rtx is installed; {ways}"
    return no_device()


def no_device() -> str | None:
    try:
        driver.open_device()
    except BackendUnavailableError as error:
        return str(error)
    return None


def unfit(artifact: Artifact) -> str | None:
    """Why an artifact's engines do not run here, and what to do about it; None if they do."""
    engine = artifact.engine
    if engine is None:
        return "bundle.json does not say what its engines were built with and for: optimize the bundle anew"
    if engine.module not in DISTRIBUTIONS:
        return f"its engines are of {engine.module}, known are {', '.join(DISTRIBUTIONS)}: upgrade edgeformer"
    module = runs_with(engine)
    if not is_installed(module):
        return f"{module} is not installed; {INSTALL[module]}{lean_way(engine)}"
    return other_version(engine, module) or other_platform(engine) or no_device() or other_gpu(artifact.target, engine)


def lean_way(engine: Engine) -> str:
    """How the lean runtime would do, as the end of a sentence."""
    if not engine.version_compatible:
        return ""
    other = f"; {LEAN} {installed_version(LEAN)} is here, which runs its own version only" if is_installed(LEAN) else ""
    return f", or {INSTALL[LEAN]}=={engine.version} for its lean runtime{other}"


def other_version(engine: Engine, module: str) -> str | None:
    installed = installed_version(module)
    if installed is None or same_version(installed, engine.version):
        return None
    built = f"its engines were built by {engine.module} {engine.version}, {module} {installed} is installed"
    remedy = f"optimize the bundle with {installed}, or install {engine.version}{lean_way(engine)}"
    return f"{built}, and engines run on the version that built them only: {remedy}"


def same_version(one: str, other: str) -> bool:
    """Whether two versions agree as far as both go: JetPack names 10.3.0 what a wheel names 10.3.0.26."""
    first, second = numbers(one), numbers(other)
    return all(a == b for a, b in zip(first, second, strict=False))


def numbers(version: str) -> list[str]:
    return version.split("+")[0].split(".")


def other_platform(engine: Engine) -> str | None:
    here = this_platform()
    if engine.platform == here:
        return None
    return f"its engines are for {engine.platform}, this is {here}: optimize the bundle on such a machine"


def other_gpu(target: str, engine: Engine) -> str | None:
    device = driver.open_device()
    mine, built_for = device.compute_capability, engine.compute_capabilities
    if not built_for or mine in built_for:
        return None
    if engine.hardware_compatible and older(lowest(built_for), mine):
        return None
    return (
        f"its engines are for GPUs of compute capability {', '.join(built_for)}, {device.name} has {mine}: "
        f"run `edgeformer optimize BUNDLE --target {target}` for this GPU"
    )


def lowest(capabilities: Iterable[str]) -> str:
    return min(capabilities, key=lambda text: tuple(map(int, text.split("."))))
