"""The charts of a report as one PNG, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgeformer.cli.benching.figures import Figure, Named, figures
from edgeformer.runtime.errors import BackendUnavailableError, WriteError

COLUMNS = 2


def write_picture(records: Sequence[Named], output: Path) -> None:
    """Draw every chart of these records.

    Raises:
        BackendUnavailableError: matplotlib is not installed.
        WriteError: the file cannot be written.
    """
    if find_spec("matplotlib") is None:
        raise BackendUnavailableError("a picture needs matplotlib, not installed here: pip install matplotlib")
    from matplotlib.figure import Figure as Canvas

    found = figures(records)
    rows = -(-len(found) // COLUMNS)
    canvas = Canvas(figsize=(8 * COLUMNS, 4.2 * rows), layout="constrained")
    for number, figure in enumerate(found, start=1):
        draw(canvas.add_subplot(rows, COLUMNS, number), figure)
    try:
        canvas.savefig(output, format="png", dpi=110)
    except OSError as error:
        raise WriteError(f"{output} cannot be written: {error.strerror or error}") from error


def draw(axes: Any, figure: Figure) -> None:
    """A chart, into matplotlib's axes."""
    for line in figure.lines:
        across, up = zip(*line.points, strict=True)
        axes.plot(across, up, label=line.name, marker="" if line.joined and len(across) > 20 else "o", markersize=4)
    for axis, scale, label in (
        (figure.x, axes.set_xscale, axes.set_xlabel),
        (figure.y, axes.set_yscale, axes.set_ylabel),
    ):
        scale("log" if axis.log else "linear")
        label(axis.label)
    axes.set(title=figure.title, xlim=(figure.x.least, figure.x.most), ylim=(figure.y.least, figure.y.most))
    axes.grid(alpha=0.3)
    if len(figure.lines) > 1:
        axes.legend(fontsize=7)
