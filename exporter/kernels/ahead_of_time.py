"""Our attention as plugins whose kernels the engine itself carries (`tensorrt.plugin`, from TensorRT 10.9).

Such an engine needs neither Python nor our runtime to run: TensorRT launches the PTX that it was given at build time.
One kernel for each call, so the cache is not split; two tactics, wide tiles and narrow ones, which the builder times.

Define these instead of registering the classes of `edgeformer.runtime.plugins`: both have the same names. The builder's
configuration has to be asked for aliases (`allow_aliases`); nothing here copies a cache, so that an output is to be
bound where its input is.
Written from the documentation and NVIDIA's own Python module; no engine has been built or run with it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import GenericAlias
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edgeformer.runtime.errors import TargetError
from edgeformer.runtime.plugins.kernels import CACHED, PREFILL, SHORT, SOURCE, Kernel, Variant, read_kernels
from edgeformer.runtime.plugins.tensorrt_plugin import ALIASES, DTYPES, INTEGERS, NAMESPACE

TENSORS = {
    CACHED: ("query", "key", "value", "past_key", "past_value", "cache_lengths"),
    SOURCE: ("query", "key", "value", "source_lengths"),
}
CAPACITY = {CACHED: "past_key", SOURCE: "key"}  # the input whose third dimension it is
TACTICS = {1: PREFILL, 2: SHORT}
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class PluginModule(Protocol):
    """What is used of `tensorrt.plugin`."""

    TensorDesc: Any
    KernelLaunchParams: Any
    SymIntExprs: Any
    SymInt32: Any
    AutoTuneCombination: Any

    def cdiv(self, first: Any, second: Any) -> Any: ...
    def register(self, plugin_id: str) -> Decorator: ...
    def aot_impl(self, plugin_id: str) -> Decorator: ...
    def autotune(self, plugin_id: str) -> Decorator: ...


def define_plugins(trtp: PluginModule, folder: Path) -> None:
    """Define both operators, with a folder's portable kernels.

    Args:
        trtp: `tensorrt.plugin`.
        folder: kernels that `compiling.write_kernels` wrote.

    Raises:
        BundleError: the folder's index is missing or damaged.
    """
    codes = {kernel: (folder / kernel.file).read_text() for kernel in read_kernels(folder) if kernel.is_portable}
    for operator in (CACHED, SOURCE):
        plugin_id = f"{NAMESPACE}::{operator}"
        trtp.register(plugin_id)(describing(trtp, operator))
        trtp.autotune(plugin_id)(tactics(trtp, operator))
        trtp.aot_impl(plugin_id)(implementing(trtp, operator, codes))


def signed(function: Callable[..., Any], names: Mapping[str, Any], returns: Any) -> Callable[..., Any]:
    """Give a function the parameters and types that `tensorrt.plugin` reads."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind, annotation=annotation) for name, annotation in names.items()]
    function.__signature__ = inspect.Signature(parameters, return_annotation=returns)  # type: ignore[attr-defined]
    return function


def parameters_of(trtp: PluginModule, operator: str) -> dict[str, Any]:
    """The operator's inputs, then its attributes: arrays of one, whose fields have the types of the ONNX node's."""
    attributes = {"scale": npt.NDArray[np.float32], **dict.fromkeys(INTEGERS[operator], npt.NDArray[np.int32])}
    return {**dict.fromkeys(TENSORS[operator], trtp.TensorDesc), **attributes}


def describing(trtp: PluginModule, operator: str) -> Callable[..., Any]:
    def describe(*tensors: Any, **attributes: Any) -> Any:
        aliases = ALIASES[operator]
        return tuple(tensors[alias].aliased() if alias >= 0 else tensors[0].like() for alias in aliases)

    return signed(describe, parameters_of(trtp, operator), outputs_of(trtp, operator))


def outputs_of(trtp: PluginModule, operator: str) -> GenericAlias:
    return GenericAlias(tuple, (trtp.TensorDesc,) * len(ALIASES[operator]))


def tactics(trtp: PluginModule, operator: str) -> Callable[..., Any]:
    def offer(*given: Any) -> Any:
        tensors, outputs = given[:-1], given[-1]
        types = ["INT32" if tensor is tensors[-1] else type_name(tensor) for tensor in (*tensors, *outputs)]
        return [trtp.AutoTuneCombination(", ".join(types), "LINEAR", list(TACTICS))]

    names = {**dict.fromkeys(TENSORS[operator], trtp.TensorDesc), "outputs": outputs_of(trtp, operator)}
    return signed(offer, names, GenericAlias(list, (trtp.AutoTuneCombination,)))


def type_name(tensor: Any) -> str:
    name = str(tensor.dtype.name)
    return {"HALF": "FP16", "FLOAT": "FP32"}.get(name, name)


def implementing(trtp: PluginModule, operator: str, codes: Mapping[Kernel, str]) -> Callable[..., Any]:
    names = TENSORS[operator]

    def implement(*given: Any) -> Any:
        tensors, tactic = dict(zip(names, given, strict=False)), given[-1]
        values = dict(zip(("scale", *INTEGERS[operator]), given[len(names) : -2], strict=True))
        variant = variant_of(operator, tensors["query"], values)
        kernel = portable(codes, variant, TACTICS.get(int(tactic), SHORT))
        batch, q_len = (tensors["query"].shape_expr[axis] for axis in (0, 2))
        launch = trtp.KernelLaunchParams()
        launch.grid_x = trtp.cdiv(q_len * variant.group, kernel.block_rows)
        launch.grid_y = batch * variant.num_kv_heads
        launch.block_x = kernel.num_warps * 32
        launch.shared_mem = kernel.shared
        extra = trtp.SymIntExprs(2)
        extra[0], extra[1] = trtp.SymInt32(q_len), trtp.SymInt32(tensors[CAPACITY[operator]].shape_expr[2])
        name = re.sub(r"\W", "_", Path(kernel.file).stem)  # of its own: an engine may tell kernels apart by it
        return name, renamed(without_scratch(codes[kernel], kernel.entry), kernel.entry, name), launch, extra

    parameters = {**parameters_of(trtp, operator), "outputs": outputs_of(trtp, operator), "tactic": int}
    return signed(implement, parameters, GenericAlias(tuple, (str, str, trtp.KernelLaunchParams, trtp.SymIntExprs)))


def variant_of(operator: str, query: Any, values: Mapping[str, Any]) -> Variant:
    numbers = {name: int(np.ravel(values[name])[0]) for name in INTEGERS[operator]}
    scale = float(np.ravel(values["scale"])[0])
    return Variant(operator, DTYPES[query.dtype.name], int(query.shape[3]), scale=scale, **numbers)


def portable(kernels: Iterable[Kernel], variant: Variant, form: str) -> Kernel:
    for kernel in kernels:
        if kernel.form == form and kernel.variant.is_same(variant):
            return kernel
    raise TargetError(f"no portable {form} kernel of {variant} was compiled: write the kernels of this graph first")


def without_scratch(ptx: str, entry: str) -> str:
    """The kernel without the two pointers that the compiler adds last, which TensorRT does not pass.

    Raises:
        TargetError: the kernel uses one of them.
    """
    declared = re.search(rf"\.entry {entry}\((.*?)\n\)", ptx, re.DOTALL)
    parameters = declared[1].split(",\n") if declared else []
    dropped = [parameter.split()[-1] for parameter in parameters[-2:]]
    if declared is None or any(len(re.findall(rf"\b{name}\b", ptx)) != 1 for name in dropped):
        raise TargetError(f"kernel {entry} needs scratch memory, which TensorRT does not give")
    return ptx.replace(declared[1], ",\n".join(parameters[:-2]))


def renamed(ptx: str, entry: str, name: str) -> str:
    return re.sub(rf"\b{entry}\b", name, ptx)
