"""The report as one HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2

from edgeformer.exporter.tensorrt.report import ArtifactReport, Attention, BuildReport, Shape
from edgeformer.runtime.bundle import Limits

TEMPLATE = Path(__file__).with_name("report.html.jinja")
UNITS = ("bytes", "kB", "MB", "GB")
VERDICTS = {True: "fused", False: "not fused", None: "not known"}


def to_html(report: ArtifactReport) -> str:
    """A page that holds all of a report: a summary, attentions, layers with a filter, and the log.

    It loads nothing, and its content security policy lets it load nothing. All text is escaped.
    """
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"size": size, "shape": shape, "verdict": verdict, "limits": limits}
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    attentions = [attention for build in report.builds.values() for attention in build.attentions]
    return template.render(
        report=report,
        attentions=attentions,
        fused=sum(build.fused for build in report.builds.values()),
        plan_bytes=sum(build.plan_bytes for build in report.builds.values()),
        weights=total_weights(list(report.builds.values())),
        versions=dict(item for build in report.builds.values() for item in build.versions.items()),
        warnings=[(role, text) for role, build in report.builds.items() for text in build.unused_inputs],
    )


def total_weights(builds: Sequence[BuildReport]) -> dict[str, int]:
    names = dict.fromkeys(name for build in builds for name in build.weights)
    return {name: sum(build.weights.get(name, 0) for build in builds) for name in names}


def size(count: int) -> str:
    """A number of bytes for people, on one line: 21.6 MB."""
    power = min((len(str(count)) - 1) // 3, len(UNITS) - 1)
    return f"{count / 1000**power:.{1 if power else 0}f}\N{NO-BREAK SPACE}{UNITS[power]}"


def shape(dims: Shape) -> str:
    return f"({', '.join(map(str, dims))})"


def limits(values: Limits) -> str:
    return str(values[0]) if values[0] == values[2] else f"{values[0]} to {values[2]}, usually {values[1]}"


def verdict(attention: Attention) -> str:
    return VERDICTS[attention.fused]
