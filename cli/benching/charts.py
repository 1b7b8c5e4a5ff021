"""Charts as SVG, drawn in this page's own colours: no script, no font, no image from anywhere.

Colours are custom properties of the page (`--s0` ... of series, `--ink`, `--grid`), so that they follow dark mode.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 72, 14, 12, 60
COLOURS = 6
MARGIN = 1.15  # times that a logarithmic axis goes beyond its values
MOST_TICKS = 8

Points = Sequence[tuple[float, float]]


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """Points that belong together; joined, or marked one by one where `joined` is False."""

    name: str
    points: Points
    joined: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Axis:
    """Where numbers lie: from least to most, by their logarithms where `log` says so."""

    label: str
    least: float
    most: float
    log: bool = False

    @classmethod
    def of(cls, label: str, values: Sequence[float], *, log: bool = False, zero: bool = False) -> Axis:
        """An axis that holds all of these values."""
        low, high = min(values), max(values)
        if log:
            return cls(label, low / MARGIN, high * MARGIN, True)
        low = 0.0 if zero else low
        spare = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
        return cls(label, low if zero else low - spare, high + spare)

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        if self.log:
            return math.log(value / self.least) / math.log(self.most / self.least)
        return (value - self.least) / (self.most - self.least)

    def ticks(self) -> list[float]:
        if self.log and self.most / self.least > 10:
            return self.log_ticks()
        step = nice((self.most - self.least) / 5)
        return [step * i for i in range(math.ceil(self.least / step), math.floor(self.most / step) + 1)]

    def log_ticks(self) -> list[float]:
        """1, 2 and 5 of each power of ten, or powers alone where those are many."""
        first, last = math.floor(math.log10(self.least)), math.ceil(math.log10(self.most))
        factors = (1.0,) if last - first > 3 else (1.0, 2.0, 5.0)
        values = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
        return every([value for value in values if self.least <= value <= self.most], MOST_TICKS)


def every(values: Sequence[float], most: int) -> list[float]:
    """Not more than so many of them, at equal distances."""
    return list(values[:: -(-len(values) // most)]) if values else []


def nice(rough: float) -> float:
    """1, 2 or 5 times a power of ten, near a number."""
    power = float(10.0 ** math.floor(math.log10(rough)))
    return next(factor * power for factor in (1, 2, 5, 10) if rough <= factor * power)


def short(value: float) -> str:
    """A number for an axis: 1.2k, 3M, 0.05."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def chart(title: str, x: Axis, y: Axis, lines: Sequence[Line]) -> str:
    """An SVG with axes, a grid, the lines, and a legend below it where there are several."""
    parts = [*grid(x, y)]
    for number, line in enumerate(lines):
        colour = f"var(--s{number % COLOURS})"
        at = [place(x, y, point) for point in line.points]
        if line.joined and len(at) > 1:
            path = " ".join(f"{left:.1f},{top:.1f}" for left, top in at)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if not line.joined or len(at) <= 20:
            parts += [
                f'<circle cx="{left:.1f}" cy="{top:.1f}" r="4" fill="{colour}">'
                f"<title>{escape(line.name)}: {short(px)}, {short(py)}</title></circle>"
                for (left, top), (px, py) in zip(at, line.points, strict=True)
            ]
    drawn = "".join(parts)
    label = f'role="img" aria-label="{escape(title, quote=True)}"'
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" {label}>{drawn}</svg>'
        f"{legend(lines)}</figure>"
    )


def place(x: Axis, y: Axis, point: tuple[float, float]) -> tuple[float, float]:
    across, up = x.share(point[0]), y.share(point[1])
    return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)


def grid(x: Axis, y: Axis) -> list[str]:
    parts, floor = [], HEIGHT - BOTTOM
    for value in x.ticks():
        left, _ = place(x, y, (value, y.least))
        parts.append(f'<line class="grid" x1="{left:.1f}" y1="{TOP}" x2="{left:.1f}" y2="{floor}"/>')
        parts.append(f'<text x="{left:.1f}" y="{floor + 22}" text-anchor="middle">{short(value)}</text>')
    for value in y.ticks():
        _, top = place(x, y, (x.least, value))
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{top:.1f}" x2="{WIDTH - RIGHT}" y2="{top:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{top + 4:.1f}" text-anchor="end">{short(value)}</text>')
    middle = (TOP + floor) / 2
    parts.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x.label)}</text>')
    parts.append(
        f'<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">{escape(y.label)}</text>'
    )
    return parts


def legend(lines: Sequence[Line]) -> str:
    if len(lines) < 2:
        return ""
    items = "".join(
        f'<li><span style="background:var(--s{number % COLOURS})"></span>{escape(line.name)}</li>'
        for number, line in enumerate(lines)
    )
    return f'<ul class="legend">{items}</ul>'
