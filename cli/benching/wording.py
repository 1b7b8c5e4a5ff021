"""Figures of a record for people: in tables of the terminal, in Markdown, and on pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edgeformer.cli.printing import size

NONE = "-"
UNDISTURBED = "nothing disturbed it"
COLUMNS = (
    "artifact", "batch", "beams", "prompt", "new", "first token", "next token", "call", "tokens/s", "per user",
    "J/token", "bandwidth", "compute",
)  # fmt: skip
NUMBERS = COLUMNS[1:]
LEGEND = (
    "latencies in ms: p50 [95 % interval] / p90 / p99, a ~ where too few calls bound it; bandwidth and compute: "
    "shares of this machine's ceilings, of a step, or of a call without steps"
)


def cell_rows(record: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for artifact in record["artifacts"]:
        for cell in artifact["cells"]:
            yield cell_row(artifact["artifact"], cell)


def cell_row(artifact: str, cell: Mapping[str, Any]) -> tuple[str, ...]:
    step, energy = share_of(cell), cell["energy"]
    return (
        artifact,
        str(cell["batch"]) + (" replay" if cell.get("replay") else ""),
        str(cell["num_beams"]),
        str(cell["prompt"] or NONE),
        str(cell["new_tokens"] or NONE),
        latency(cell["ttft_ms"]),
        latency(cell["itl_ms"]),
        latency(cell["e2e_ms"]),
        f"{cell['tokens_per_second']['value']:.1f}",
        f"{cell['tokens_per_second_per_user']['value']:.1f}",
        energy if isinstance(energy, str) else f"{energy['joules_per_token']:.3g}",
        step if isinstance(step, str) else f"{step['bandwidth_share']:.1%}",
        step if isinstance(step, str) else f"{step['compute_share']:.1%}",
    )


def share_of(cell: Mapping[str, Any]) -> Any:
    """Shares of the ceilings: of a step, or of a first token where nothing follows it, as of an encoder."""
    return cell["roofline"]["step" if cell["itl_ms"] else "first_token"]


def latency(values: Mapping[str, Mapping[str, float | None]] | None) -> str:
    if values is None:
        return NONE
    half = values["p50"]
    span = NONE if half["low"] is None or half["high"] is None else f"{half['low']:.2f}-{half['high']:.2f}"
    others = [f"{'~' if values[p]['high'] is None else ''}{values[p]['value']:.2f}" for p in ("p90", "p99")]
    return f"{half['value']:.2f} [{span}] / {' / '.join(others)}"


def apart(artifact: Mapping[str, Any]) -> str:
    """Load time and memory of an artifact, in one line."""
    load, memory = artifact["load"], artifact["memory"]
    if isinstance(load, str):
        return f"{artifact['artifact']}: load time and memory were not measured"
    cold = load["cold"] if isinstance(load["cold"], str) else f"{load['cold']['load_seconds']:.2f} s"
    host, device = (value if isinstance(value, str) else size(value) for value in memory.values())
    return (
        f"{artifact['artifact']}: load {cold} cold, {load['warm']['load_seconds']:.2f} s warm; "
        f"peak memory {host}, of the device {device}"
    )


def findings(record: Mapping[str, Any]) -> list[str]:
    """What disturbed the run."""
    return [
        f"{artifact['artifact']}: {finding['said']}"
        for artifact in record["artifacts"]
        for finding in artifact["noise"]["findings"]
    ]


def machine(record: Mapping[str, Any]) -> str:
    here, versions = record["machine"], record["versions"]
    shown = ("edgeformer", "onnxruntime", "onnxruntime-gpu", "tensorrt", "numpy")
    used = ", ".join(f"{package} {versions[package]}" for package in shown if package in versions)
    board = f"{here['jetson']}, " if here.get("jetson") else ""
    return f"{board}{here['cpu']}, {here['cores']} cores, {here['os']}, Python {here['python']}, {used}"


def ceilings(record: Mapping[str, Any]) -> str:
    found = record["ceilings"]
    if isinstance(found, str):
        return f"ceilings of this machine: {found}"
    far, threads = max(found["read_bytes_per_second"], key=int), found["threads"]
    return (
        f"ceilings with {threads} thread{'s' if threads > 1 else ''}: "
        f"{found['read_bytes_per_second'][far] / 1e9:.1f} GB/s read from memory, "
        f"{found['flops_per_second'] / 1e9:.0f} GFLOP/s of float32 products"
    )


def lacking(record: Mapping[str, Any]) -> list[str]:
    """Counters that this machine does not have, with the reasons."""
    return sorted(
        {
            f"{counter['name']}: {counter['reason']}"
            for artifact in record["artifacts"]
            for counter in artifact["telemetry"]["counters"]
            if isinstance(counter["values"], str)
        }
    )


def quiet(record: Mapping[str, Any]) -> str:
    """Whether something disturbed the run, and whether that could be seen at all."""
    if found := findings(record):
        return f"NOISY, believe it with care: {'; '.join(found)}"
    others = [artifact["noise"]["other_cores"] for artifact in record["artifacts"]]
    unseen = sorted({value for value in others if isinstance(value, str)})
    return f"nothing was seen to disturb it; other work on the cores: {', '.join(unseen)}" if unseen else UNDISTURBED
