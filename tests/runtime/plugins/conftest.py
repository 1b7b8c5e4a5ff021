"""Folders of kernels that nobody compiled: their code is a word, their records are what a compiler would write."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from edgeformer.runtime.plugins.kernels import CACHED, DECODE, MERGE, PREFILL, SOURCE, Kernel, Variant, write_index

CACHED_ATTENTION = Variant(CACHED, "float16", 64, 4, 2, 0.125)
SOURCE_ATTENTION = Variant(SOURCE, "float16", 64, 4, 2, 0.125)
HIDDEN = ("global_scratch", "profile_scratch")
GIVEN = {
    CACHED: ("query_ptr", "key_ptr", "value_ptr", "past_key_ptr", "past_value_ptr", "lengths_ptr", "q_len", "capacity"),
    SOURCE: ("query_ptr", "past_key_ptr", "past_value_ptr", "lengths_ptr", "q_len", "capacity"),
}
MADE = {CACHED: ("present_key_ptr", "present_value_ptr"), SOURCE: ()}


def record(variant: Variant, form: str, compute_capability: str = "8.7", suffix: str = "cubin") -> Kernel:
    """What the compiler writes of such a kernel."""
    names: tuple[str, ...] = (*GIVEN[variant.operator], "out_ptr", *MADE[variant.operator])
    if form == DECODE:
        names = (*GIVEN[variant.operator], *MADE[variant.operator], "partial_ptr", "stats_ptr")
    if form == MERGE:
        names = ("partial_ptr", "stats_ptr", "out_ptr")
    return Kernel(
        variant=variant,
        form=form,
        compute_capability=compute_capability,
        file=f"{variant.operator}-{variant.dtype}-{form}-{compute_capability}.{suffix}",
        entry="merge_splits" if form == MERGE else "attention",
        arguments=tuple((name, "pointer" if name.endswith("_ptr") else "int32") for name in names)
        + tuple((name, "pointer") for name in HIDDEN),
        shared=65536 if form == PREFILL else 4096,
        num_warps=8 if form == PREFILL else 4,
        block_rows={PREFILL: 64, DECODE: 16, MERGE: 1}[form],
        splits=1 if form == PREFILL else 8,
    )


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., Path]:
    """Writes kernels of both operators in all forms, for each GPU as machine code and as PTX for 8.0."""

    def make(*compute_capabilities: str, portable: bool = True, name: str = "kernels") -> Path:
        folder = tmp_path / name
        folder.mkdir()
        targets = [(capability, "cubin") for capability in compute_capabilities] + [("8.0", "ptx")] * portable
        kernels = [
            record(dataclasses.replace(variant), form, capability, suffix)
            for variant in (CACHED_ATTENTION, SOURCE_ATTENTION)
            for form in (PREFILL, DECODE, MERGE)
            for capability, suffix in targets
        ]
        for kernel in kernels:
            (folder / kernel.file).write_bytes(kernel.file.encode())
        write_index(folder, kernels, {"triton": "3.9.0"})
        return folder

    return make
