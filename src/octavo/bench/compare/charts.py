"""Charts as inline SVG. Colours are CSS classes, so that they follow the reader's theme."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 380
"""Units of every chart: about the pixels of a phone, so that no text shrinks there."""

ROW, BAR = 40, 16
LEFT, RIGHT, TOP, BOTTOM = 38, 10, 24, 34

Points = Sequence[tuple[float, float]]
At = Callable[[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Series:
    """A line, or dots with names, drawn in the colour of the class `css`."""

    name: str
    css: str
    points: Points
    dots: bool = False


def stacked(rows: Sequence[tuple[str, str, Sequence[tuple[str, str, float]]]], label: str) -> str:
    """Bars of (name, text at its end, [(class, what it is, share)]); shares are of the width."""
    out = []
    for i, (name, text, parts) in enumerate(rows):
        y = i * ROW
        out.append(_text(0, y + 13, name) + _text(WIDTH, y + 13, text, "end"))
        x = 0.0
        for css, what, share in parts:
            width = WIDTH * share
            tip = escape(f"{what}: {100 * share:.1f} %")
            out.append(
                f'<rect class="{css}" x="{x:.1f}" y="{y + 19}" width="{width:.1f}" height="{BAR}">'
                f"<title>{tip}</title></rect>"
            )
            x += width
    return _svg(len(rows) * ROW, label, out)


def bars(rows: Sequence[tuple[str, str, str, float]], label: str) -> str:
    """Bars of (class, name, text at its end, value), the greatest as long as the chart."""
    most = max((value for *_, value in rows), default=0.0) or 1.0
    return stacked(
        [(name, text, [(css, text, value / most)]) for css, name, text, value in rows], label
    )


def plot(series: Sequence[Series], label: str, x_name: str, y_name: str) -> str:
    """Lines and dots over axes that begin at 0."""
    height = 240
    xs = [x for s in series for x, _ in s.points]
    ys = [y for s in series for _, y in s.points]
    x_most, y_most = _round_up(max(xs, default=1.0)), _round_up(max(ys, default=1.0))

    def at(x: float, y: float) -> tuple[float, float]:
        wide, high = WIDTH - LEFT - RIGHT, height - TOP - BOTTOM
        return LEFT + wide * x / x_most, height - BOTTOM - high * y / y_most

    out = []
    for i in range(5):
        x, y = x_most * i / 4, y_most * i / 4
        out.append(_line(at(0, y), at(x_most, y)))
        out.append(_text(LEFT - 5, at(0, y)[1] + 4, f"{y:g}", "end", "tick"))
        out.append(_text(at(x, 0)[0], height - BOTTOM + 14, f"{x:g}", "middle", "tick"))
    out.append(_text(WIDTH - RIGHT, height - 3, x_name, "end", "tick"))
    out.append(_text(0, 12, y_name, "start", "tick"))
    for s in series:
        out += _dots(s, at) if s.dots else [_path(s, at)]
    return _svg(height, label, out)


def _path(series: Series, at: At) -> str:
    places = " ".join("{:.1f},{:.1f}".format(*at(x, y)) for x, y in series.points)
    return (
        f'<polyline class="line {series.css}" points="{places}">'
        f"<title>{escape(series.name)}</title></polyline>"
    )


def _dots(series: Series, at: At) -> list[str]:
    dots = []
    for point in series.points:
        x, y = at(*point)
        tip = f"<title>{escape(series.name)}</title>"
        dots.append(f'<circle class="{series.css}" cx="{x:.1f}" cy="{y:.1f}" r="5">{tip}</circle>')
    return dots


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 6, 8, 10, 20, ...: four even steps with short names."""
    unit = 1.0
    while unit * 10 < value:
        unit *= 10
    while unit > value > 0:
        unit /= 10
    return next((unit * k for k in (1, 2, 4, 6, 8, 10) if unit * k >= value), value or 1.0)


def _line(start: tuple[float, float], end: tuple[float, float]) -> str:
    return '<line class="grid" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'.format(
        *start, *end
    )


def _text(x: float, y: float, text: str, anchor: str = "start", css: str = "label") -> str:
    return (
        f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    start = f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}">'
    return start + "".join(parts) + "</svg>"
