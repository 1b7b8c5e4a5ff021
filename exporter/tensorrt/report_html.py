"""The report as one HTML page that needs no network."""

from __future__ import annotations

from edgeformer.exporter.tensorrt.report import ArtifactReport


def to_html(report: ArtifactReport) -> str:
    """A page that holds all of a report: a summary, attentions, layers with a filter, and the log."""
    raise NotImplementedError
