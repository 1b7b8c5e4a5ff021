"""From the Triton source to machine code for each GPU, on a machine that has none.

Triton needs no driver to compile; ptxas comes with it. Its launcher is not used: what it would know is written down as
`Kernel` records, for a runtime that has no Triton.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from edgeformer.exporter.kernels.resources import read_resources
from edgeformer.exporter.kernels.tiles import TURING, Tile, block_dim, tile_of
from edgeformer.runtime.errors import BackendUnavailableError, BuildError, TargetError
from edgeformer.runtime.plugins.kernels import (
    CACHED,
    DECODE,
    MERGE,
    PREFILL,
    SHORT,
    SPLITS,
    Kernel,
    Variant,
    write_index,
)

COMPUTE_CAPABILITIES = ("7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")
PORTABLE = "8.0"  # PTX for this one, read by every later GPU; from 9.0 on the compiler's PTX is for one GPU alone
PORTABLE_PTX_VERSION = 80  # the PTX of CUDA 12.0: every driver of CUDA 12 and later reads it, JetPack 6's among them
SHORTEST_HEAD, LONGEST_HEAD, HEAD_STEP = 16, 128, 8
TYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
# Triton appends these to every kernel's arguments; ours use neither, and get null pointers.
HIDDEN = ("global_scratch", "profile_scratch")


@dataclasses.dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel's record, and the content of its file."""

    kernel: Kernel
    code: bytes


def write_kernels(folder: Path, variants: Iterable[Variant], compute_capabilities: Iterable[str]) -> list[Kernel]:
    """Compile what these attentions need on these GPUs, and the portable form; write it with its index.

    Args:
        folder: created where it is missing; what is in it already is kept, the index replaced.
        compute_capabilities: such as 8.7.

    Raises:
        TargetError: a GPU or an attention that the kernels are not made for.
        BackendUnavailableError: Triton is not installed.
    """
    variants, capabilities = list(dict.fromkeys(variants)), list(dict.fromkeys(compute_capabilities))
    check_request(variants, capabilities)
    folder.mkdir(parents=True, exist_ok=True)
    kernels = []
    for variant in variants:
        for compiled in compile_variant(variant, capabilities):
            (folder / compiled.kernel.file).write_bytes(compiled.code)
            kernels.append(compiled.kernel)
    write_index(folder, kernels, {"triton": load_triton().__version__})
    return kernels


def check_request(variants: Iterable[Variant], compute_capabilities: Sequence[str]) -> None:
    for capability in compute_capabilities:
        if capability not in COMPUTE_CAPABILITIES:
            known = ", ".join(COMPUTE_CAPABILITIES)
            raise TargetError(f"our attention kernels are not made for compute capability {capability}; known: {known}")
    for variant in variants:
        if variant.head_dim not in range(SHORTEST_HEAD, LONGEST_HEAD + 1, HEAD_STEP):
            raise TargetError(
                f"{variant}: head_dim is {variant.head_dim}, our attention kernels take {SHORTEST_HEAD} to "
                f"{LONGEST_HEAD} in multiples of {HEAD_STEP}"
            )
        if variant.dtype not in TYPES:
            raise TargetError(f"{variant}: type is {variant.dtype}, our attention kernels take {', '.join(TYPES)}")
        if variant.dtype == "bfloat16" and TURING in compute_capabilities:
            raise TargetError(f"{variant}: compute capability {TURING} has no bfloat16; float16 works")
        if variant.num_kv_heads < 1 or variant.num_heads % variant.num_kv_heads:
            raise TargetError(f"{variant}: num_heads is not a multiple of num_kv_heads")


def compile_variant(variant: Variant, compute_capabilities: Iterable[str]) -> Iterator[Compiled]:
    """Machine code of the forms that are launched one by one, then the portable ones, the unsplit form among them."""
    for capability in compute_capabilities:
        for form in (PREFILL, DECODE, MERGE):
            yield compile_kernel(variant, form, capability)
    for form in (PREFILL, DECODE, MERGE, SHORT):
        yield compile_kernel(variant, form, PORTABLE, portable=True)


def compile_kernel(variant: Variant, form: str, compute_capability: str, *, portable: bool = False) -> Compiled:
    """One kernel for one GPU: a cubin, or PTX where it shall be portable."""
    triton = load_triton()
    from triton.backends.compiler import GPUTarget

    number = int(compute_capability.replace(".", ""))
    tile = tile_of(variant, form, compute_capability)
    source = source_of(variant, form, tile)
    options: dict[str, Any] = {"num_warps": tile.num_warps, "num_stages": tile.num_stages, "enable_fp_fusion": True}
    if portable:
        options["ptx_version"] = PORTABLE_PTX_VERSION
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.disable_line_info = True  # it would hold this machine's paths
        built = triton.compile(source, target=GPUTarget("cuda", number, 32), options=options)
    if built.metadata.global_scratch_size or built.metadata.profile_scratch_size:
        raise BuildError(f"the {form} kernel of {variant} wants scratch memory, which our launcher does not give")
    suffix = "ptx" if portable else "cubin"
    code = built.asm["ptx"].encode() if portable else built.asm["cubin"]
    resources = read_resources(built.asm["cubin"])
    return Compiled(
        Kernel(
            variant=variant,
            form=form,
            compute_capability=compute_capability,
            file=f"{slug(variant)}-{form}-sm_{number}.{suffix}",
            entry=built.metadata.name,
            arguments=arguments_of(source),
            shared=built.metadata.shared,
            num_warps=built.metadata.num_warps,
            block_rows=1 if form == MERGE else tile.rows,
            splits=SPLITS if form == MERGE else tile.splits,
            registers=resources.registers,
            local=resources.local,
        ),
        code,
    )


def load_triton() -> Any:
    try:
        import triton
    except ModuleNotFoundError as error:
        raise BackendUnavailableError("Triton compiles our attention kernels: pip install 'triton>=3.9'") from error
    return triton


def slug(variant: Variant) -> str:
    heads = f"{variant.num_heads}x{variant.head_dim}-over-{variant.num_kv_heads}"
    return f"{variant.operator}-{variant.dtype}-{heads}-scale-{variant.scale:.6g}-window-{variant.window}"


def source_of(variant: Variant, form: str, tile: Tile) -> Any:
    """What Triton compiles: a kernel with its types and constants. An argument that is constant None goes away."""
    from triton.compiler import ASTSource

    from edgeformer.exporter.kernels import attention

    merges = form == MERGE
    function = attention.merge_splits if merges else attention.attention
    constants = constants_of(variant, SPLITS if merges else tile.splits, tile.rows, tile.keys)
    if not merges:
        unused = {"out_ptr"} if tile.splits > 1 else {"partial_ptr", "stats_ptr"}
        if variant.operator != CACHED:
            unused |= {"key_ptr", "value_ptr", "present_key_ptr", "present_value_ptr"}
        constants |= dict.fromkeys(unused)
    names = function.arg_names
    constants = {name: value for name, value in constants.items() if name in names}
    signature = {name: "constexpr" if name in constants else type_of(name, variant.dtype) for name in names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if signature[name].startswith("*")}
    return ASTSource(fn=function, signature=signature, constexprs=constants, attrs=aligned)


def constants_of(variant: Variant, splits: int, block_rows: int, block_keys: int) -> dict[str, Any]:
    """The kernel's compile-time constants."""
    return {
        "KV_HEADS": variant.num_kv_heads,
        "GROUP": variant.group,
        "HEAD_DIM": variant.head_dim,
        "BLOCK_DIM": block_dim(variant.head_dim),
        "SCALE": variant.scale,
        "WINDOW": variant.window,
        "CACHED": variant.operator == CACHED,
        "SPLITS": splits,
        "BLOCK_ROWS": block_rows,
        "BLOCK_KEYS": block_keys,
    }


def type_of(name: str, dtype: str) -> str:
    special = {"lengths_ptr": "*i32", "partial_ptr": "*fp32", "stats_ptr": "*fp32"}
    return special.get(name, f"*{TYPES[dtype]}" if name.endswith("_ptr") else "i32")


def arguments_of(source: Any) -> tuple[tuple[str, str], ...]:
    """Names and types in the order of the launch."""
    named = [(name, kind) for name, kind in source.signature.items() if kind != "constexpr"]
    given = [(name, "pointer" if kind.startswith("*") else "int32") for name, kind in named]
    return (*given, *((name, "pointer") for name in HIDDEN))
