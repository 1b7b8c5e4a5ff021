"""What our attention kernels take of each GPU, and whether anything spills: compiled here, run nowhere.

    python benchmarks/kernel_resources.py --compute-capability 8.7 --compute-capability 8.9 -o resources.json

Registers, local memory (where registers spill to) and shared memory are those of the machine code; occupancy, the share
of a multiprocessor's warps that fit at once, is estimated from them. Exit code 1 if a kernel spills. Needs Triton.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from edgeformer.cli.machine import this_machine
from edgeformer.cli.printing import print_line, print_table, write_json
from edgeformer.cli.progress import counting
from edgeformer.cli.requirements import installed_version
from edgeformer.exporter.kernels.compiling import COMPUTE_CAPABILITIES, TYPES, check_request, compile_kernel
from edgeformer.exporter.kernels.resources import occupancy
from edgeformer.runtime.errors import EdgeformerError
from edgeformer.runtime.plugins.kernels import CACHED, DECODE, PREFILL, SOURCE, Variant

HEADS = 8
COLUMNS = ("GPU", "operator", "type", "head_dim", "form", "registers", "local", "shared", "warps", "occupancy")


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One kernel on one GPU; local and shared memory in bytes, of a thread and of a block."""

    compute_capability: str
    operator: str
    dtype: str
    head_dim: int
    form: str
    registers: int
    local: int
    shared: int
    num_warps: int
    occupancy: float

    def cells(self) -> tuple[str, ...]:
        return (*map(str, dataclasses.astuple(self)[:-1]), f"{self.occupancy:.0%}")


def measure(capabilities: list[str], dtypes: list[str], head_dims: list[int]) -> Iterator[Row]:
    for capability, operator, dtype, head_dim, form in itertools.product(
        capabilities, (CACHED, SOURCE), dtypes, head_dims, (PREFILL, DECODE)
    ):
        variant = Variant(operator, dtype, head_dim, HEADS, HEADS, head_dim**-0.5)
        kernel = compile_kernel(variant, form, capability).kernel
        fits = occupancy(capability, kernel.num_warps, kernel.shared, kernel.registers)
        taken = (kernel.registers, kernel.local, kernel.shared, kernel.num_warps, fits)
        yield Row(capability, operator, dtype, head_dim, form, *taken)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compute-capability", action="append", help="such as 8.7; repeat it; all if not given")
    parser.add_argument("--dtype", action="append", choices=list(TYPES), help="float16 if not given")
    parser.add_argument("--head-dim", action="append", type=int, help="64 and 128 if not given")
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    capabilities = arguments.compute_capability or list(COMPUTE_CAPABILITIES)
    dtypes, head_dims = arguments.dtype or ["float16"], arguments.head_dim or [64, 128]
    try:
        check_request((Variant(CACHED, "float16", size, 1, 1, 1.0) for size in head_dims), capabilities)
        rows = []
        with counting("kernels", 4 * len(capabilities) * len(dtypes) * len(head_dims)) as done:
            for row in measure(capabilities, dtypes, head_dims):
                rows.append(row)
                done(1)
        print_table(COLUMNS, [row.cells() for row in rows], numbers=COLUMNS[5:])
        if arguments.output:
            machine, triton = dataclasses.asdict(this_machine()), installed_version("triton")
            values = {"machine": machine, "triton": triton, "kernels": [dataclasses.asdict(row) for row in rows]}
            write_json(arguments.output, values)
    except EdgeformerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    spilling = sum(row.local > 0 for row in rows)
    print_line(f"{len(rows)} kernels, {spilling} of them spill")
    return int(spilling > 0)


if __name__ == "__main__":
    sys.exit(main())
