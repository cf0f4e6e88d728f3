"""The plots, as SVG. Each is as wide as a phone, so that its text stays legible there; wider pages show
several side by side. Colours come from the style sheet, by the number of the series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.integration.compare.report.markup import Markup, element
from foredraft.integration.compare.report.scales import Scale, linear_scale, place_scale, ratio_scale

WIDTH = 340.0
MARGIN = 8.0
NUM_COLOURS = 8
LETTER_WIDTH = 6.7
"""At 12 px, on average; a text of wide letters may be wider."""


@dataclass(frozen=True)
class IntervalMark:
    """One line of an interval plot; ``low`` and ``high`` are ``None`` where there is no interval."""

    label: str
    value: float
    low: float | None
    high: float | None
    series: int
    note: str


@dataclass(frozen=True)
class Line:
    """One line of a line plot."""

    label: str
    points: tuple[tuple[float, float], ...]
    series: int


@dataclass(frozen=True)
class Bar:
    """One stacked bar: shares of a whole, each drawn in the colour of its place."""

    label: str
    shares: tuple[tuple[str, float], ...]


def interval_chart(marks: Sequence[IntervalMark]) -> Markup:
    """Ratios with their intervals on a common logarithmic axis; a rule stands at 1."""
    row_height, foot = 40.0, 22.0
    ends = [end for mark in marks for end in (mark.value, mark.low, mark.high) if end is not None]
    scale = ratio_scale(ends, MARGIN, WIDTH - MARGIN)
    bottom = row_height * len(marks) + 6
    parts = [*_ticks_below(scale, 4, bottom), _rule(scale(1.0), 4, bottom)]
    for number, mark in enumerate(marks):
        parts += _interval(mark, scale, row_height * number + 18)
    return _picture(bottom + foot, parts, "Speedup with interval per configuration")


def _interval(mark: IntervalMark, scale: Scale, text_y: float) -> list[Markup]:
    y = text_y + 12
    parts = [
        element("text", _fitting(mark.label, beside=mark.note), x=MARGIN, y=text_y, class_="label"),
        element("text", mark.note, x=WIDTH - MARGIN, y=text_y, class_="value"),
    ]
    if mark.low is not None and mark.high is not None:
        ends = {"x1": scale(mark.low), "x2": scale(mark.high)}
        parts.append(element("line", **ends, y1=y, y2=y, class_=f"whisker {_colour(mark.series)}"))
    dot = element("circle", _tip(f"{mark.label}: {mark.note}"), cx=scale(mark.value), cy=y, r=4.5)
    return [*parts, element("g", dot, class_=f"dot {_colour(mark.series)}")]


def line_chart(
    lines: Sequence[Line], x_label: str, y_label: str, *, share: bool = False, by_factors: bool = False
) -> Markup:
    """Lines over a few places on the x axis.

    Args:
        share: whether the values are shares, for an axis in percent up to 100.
        by_factors: whether the places grow by factors, for a logarithmic x axis.
    """
    height, left, bottom = 210.0, 44.0, 168.0
    values = [y for line in lines for _, y in line.points]
    y_scale = linear_scale([1.0] if share else values, bottom, 14.0)
    places = [x for line in lines for x, _ in line.points]
    x_scale = place_scale(places, left + 10, WIDTH - 18, by_factors=by_factors)
    parts = []
    for tick in y_scale.ticks:
        y = y_scale(tick)
        parts.append(element("line", x1=left, x2=WIDTH - MARGIN, y1=y, y2=y, class_="grid"))
        text = f"{tick:.0%}" if share else f"{tick:g}"
        parts.append(element("text", text, x=left - 5, y=y + 4, class_="tick right"))
    for tick in x_scale.ticks:
        parts.append(element("text", f"{tick:g}", x=x_scale(tick), y=bottom + 16, class_="tick middle"))
    parts.append(element("text", x_label, x=(left + WIDTH) / 2, y=bottom + 34, class_="tick middle"))
    for line in lines:
        parts += _line(line, x_scale, y_scale, share)
    return _picture(height, parts, f"{y_label} over {x_label}")


def _line(line: Line, x_scale: Scale, y_scale: Scale, share: bool) -> list[Markup]:
    places = [(x_scale(x), y_scale(y)) for x, y in line.points]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    colour = _colour(line.series)
    parts = [element("polyline", points=points, class_=f"line {colour}")] if len(places) > 1 else []
    for (x, y), (at, value) in zip(places, line.points, strict=True):
        shown = f"{value:.0%}" if share else f"{value:.1f}"
        tip = _tip(f"{line.label}, {at:g}: {shown}")
        parts.append(element("g", element("circle", tip, cx=x, cy=y, r=3.5), class_=f"dot {colour}"))
    return parts


def bar_chart(bars: Sequence[Bar]) -> Markup:
    """Stacked bars of shares, from 0 to 100 %."""
    row_height = 36.0
    parts = []
    for number, bar in enumerate(bars):
        top, x = row_height * number, MARGIN
        parts.append(element("text", _fitting(bar.label), x=MARGIN, y=top + 14, class_="label"))
        for series, (name, share) in enumerate(bar.shares):
            width = max(share, 0.0) * (WIDTH - 2 * MARGIN)
            tip = _tip(f"{bar.label}, {name}: {share:.0%}")
            parts.append(
                element("rect", tip, x=x, y=top + 19, width=width, height=11, class_=f"bar {_colour(series)}")
            )
            x += width
    return _picture(row_height * len(bars) + 4, parts, "Shares of the engine's time")


def legend(labels: Sequence[str]) -> Markup:
    """Names beside the colours of the series, in their order."""
    entries = [
        element("span", element("i", class_=f"key {_colour(series)}"), label, class_="entry")
        for series, label in enumerate(labels)
    ]
    return element("p", *entries, class_="legend")


def _fitting(label: str, beside: str = "") -> str:
    """The label, cut off where ``beside`` or the edge begins; the tip of the mark has all of it."""
    room = int((WIDTH - 2 * MARGIN) / LETTER_WIDTH) - (len(beside) + 1 if beside else 0)
    return label if len(label) <= room else f"{label[: max(room - 1, 1)]}…"


def _picture(height: float, parts: Sequence[Markup], label: str) -> Markup:
    box = f"0 0 {WIDTH:g} {height:g}"
    return element("svg", *parts, viewBox=box, role="img", aria_label=label)


def _ticks_below(scale: Scale, top: float, bottom: float) -> list[Markup]:
    parts = []
    for tick in scale.ticks:
        x = scale(tick)
        parts.append(element("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
        anchor = "tick" if x < 24 else "tick right" if x > WIDTH - 24 else "tick middle"
        parts.append(element("text", f"{tick:g}x", x=x, y=bottom + 15, class_=anchor))
    return parts


def _rule(x: float, top: float, bottom: float) -> Markup:
    return element("line", x1=x, x2=x, y1=top, y2=bottom, class_="rule")


def _tip(text: str) -> Markup:
    return element("title", text)


def _colour(series: int) -> str:
    return f"c{series % NUM_COLOURS}"
