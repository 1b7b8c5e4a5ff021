"""`edgeformer optimize`: a bundle gets an artifact for a target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from edgeformer.exporter.quantization_options import QuantizationOptions
    from edgeformer.exporter.tensorrt.options import EngineOptions


def optimize(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder made by `edgeformer export`.")],
    target: Annotated[
        str, typer.Option("--target", metavar="TARGET", help="What to make it for; `edgeformer targets` lists them.")
    ],
    precision: Annotated[
        str | None,
        typer.Option("--precision", metavar="PRECISION", help="How weights are stored; the target's first by default."),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            metavar="LEAST:USUAL:MOST",
            help="Engines: rows at once, a beam being a row; by default 1:8:64, of language models 1:4:32.",
        ),
    ] = None,
    q_len: Annotated[
        str | None,
        typer.Option(metavar="LEAST:USUAL:MOST", help="Engines: new tokens of a row in one step."),
    ] = None,
    source_len: Annotated[
        str | None, typer.Option(metavar="LEAST:USUAL:MOST", help="Engines: tokens of a source.")
    ] = None,
    capacity: Annotated[
        int | None,
        typer.Option(metavar="TOKENS", help="Engines: the most tokens that a row generates, prompt included."),
    ] = None,
    compute_capability: Annotated[
        list[str] | None,
        typer.Option(
            metavar="X.Y",
            help="tensorrt-rtx: a GPU to build for, such as 8.9; repeatable. By default `portable`, for all.",
        ),
    ] = None,
    attention: Annotated[
        str | None, typer.Option(metavar="FORM", help="Form of attention: native, plugin, plugin-aot or primitive.")
    ] = None,
    workspace: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Engines: the most that a layer uses for itself, such as 512M.")
    ] = None,
    timing_cache: Annotated[
        Path | None, typer.Option(metavar="FILE", help="tensorrt: keep measured timings here, for the next build.")
    ] = None,
    strip_weights: Annotated[
        bool, typer.Option("--strip-weights", help="Engines: leave weights out; they are put back when it is loaded.")
    ] = False,
    version_compatible: Annotated[
        bool, typer.Option("--version-compatible", help="tensorrt: let the lean runtime of its version run it as well.")
    ] = False,
    hardware_compatible: Annotated[
        bool, typer.Option("--hardware-compatible", help="tensorrt: let other GPUs from Ampere on run it.")
    ] = False,
    weight_streaming: Annotated[
        bool, typer.Option("--weight-streaming", help="tensorrt: let weights stay in host memory where they don't fit.")
    ] = False,
    fp32_accumulation: Annotated[
        bool, typer.Option("--fp32-accumulation", help="Engines: let attention in fp16 sum in fp32, where it can.")
    ] = False,
    opt_level: Annotated[
        int | None, typer.Option(metavar="0-5", help="Engines: how long to search for fast kernels.")
    ] = None,
    allow_unfused: Annotated[
        bool,
        typer.Option("--allow-unfused", help="Engines: let attention that no kernel computes become several layers."),
    ] = False,
    block_size: Annotated[
        int | None, typer.Option(metavar="32|64|128", help="ort-cpu, int8 int4 auto: weights that share a scale.")
    ] = None,
    asymmetric: Annotated[
        bool, typer.Option("--asymmetric", help="ort-cpu, int8 int4 auto: a zero point for each block.")
    ] = False,
    calibration: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="ort-cpu, int8 int4 auto: texts, one a line, to round the weights by."),
    ] = None,
    most_divergence: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="ort-cpu, auto: the most that 4 bits may lose, in nats a token (0.002 by default); of an encoder, "
            "as a share of its output (0.01).",
        ),
    ] = None,
    average_bits: Annotated[
        float | None, typer.Option(metavar="BITS", help="ort-cpu, auto: bits a weight, from 4 to 8.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON.")] = False,
) -> None:
    """Add an artifact for a target to a bundle, verified against what PyTorch gave at export.

    An artifact of the same target and precision is replaced. A failure leaves the bundle as it was.

    Example:
      edgeformer optimize bundle/ --target ort-cpu --precision int8
      edgeformer optimize bundle/ --target ort-cpu --precision auto --calibration texts.txt
      edgeformer optimize bundle/ --target tensorrt-rtx --precision fp16 --capacity 128 --batch 1:8:32
    """
    from edgeformer.cli import requirements
    from edgeformer.exporter.quantization_options import QuantizationOptions
    from edgeformer.exporter.targets import find_target
    from edgeformer.exporter.tensorrt.options import EngineOptions, parse_bytes, parse_limits

    find_target(target, precision)
    quantization = QuantizationOptions(
        block_size=block_size,
        asymmetric=asymmetric,
        calibration=calibration,
        most_divergence=most_divergence,
        average_bits=average_bits,
    )
    options = EngineOptions(
        batch=parse_limits("--batch", batch) if batch else None,
        q_len=parse_limits("--q-len", q_len) if q_len else None,
        source_len=parse_limits("--source-len", source_len) if source_len else None,
        capacity=capacity,
        compute_capabilities=tuple(compute_capability or ()),
        attention=attention,
        workspace=parse_bytes("--workspace", workspace) if workspace else None,
        timing_cache=timing_cache,
        strip_weights=strip_weights,
        version_compatible=version_compatible,
        hardware_compatible=hardware_compatible,
        weight_streaming=weight_streaming,
        fp32_accumulation=fp32_accumulation,
        opt_level=opt_level,
        allow_unfused=allow_unfused,
    )
    requirements.require(requirements.TO_OPTIMIZE, "optimize")
    make(bundle, target, precision, options, quantization, as_json)


def make(
    bundle: Path,
    target: str,
    precision: str | None,
    options: EngineOptions,
    quantization: QuantizationOptions,
    as_json: bool,
) -> None:
    from edgeformer.cli import interrupts, printing, progress, reports
    from edgeformer.exporter.optimizing import optimize_bundle
    from edgeformer.exporter.parity import Check
    from edgeformer.runtime.backends import lacking

    checks: list[Check] = []
    with interrupts.sigterm_interrupts(), progress.steps() as step:
        artifact = optimize_bundle(
            bundle, target, precision, options, quantization, progress=step, on_checks=checks.extend,
            on_build=step.detail,
        )  # fmt: skip
    reason = lacking(artifact)
    if as_json:
        made = {"artifact": reports.describe_artifact(artifact), "checks": reports.describe_checks(checks)}
        printing.print_json({"bundle": str(bundle), **made, "not_run": reason})
        return
    printing.print_table(["", ""], [("bundle", str(bundle)), reports.artifact_row(artifact)])
    printing.print_table(["check", "", "detail"], reports.check_rows(checks))
    if reason:
        printing.print_line(f"built, not run here: {reason}")
