"""The chart of an advice as SVG: one spider chart for each option, with the values at the tips.

The order of the axes is fixed, and a value is further out if it is better. Options differ by
colour and by dashes. Axes that rest on assumptions are grey and dashed. Nothing compares areas.
"""

import math
from collections.abc import Iterator, Sequence
from html import escape

from hostelry.advisor.advice import GroupAdvice, SimulatedOption
from hostelry.advisor.axes import AxisValue
from hostelry.advisor.ranking import RankedOption
from hostelry.advisor.values import FitAxis

WIDTH, HEIGHT, RADIUS, PER_ROW = 480, 360, 95, 2
TITLE_Y, CENTRE_Y, LABEL_GAP, LINE_HEIGHT = 24, 190, 16, 13
MARGIN, HEADING, MOST_LINES = 10, 30, 3
RINGS = (0.25, 0.5, 0.75, 1.0)
GREY, INK = "#999999", "#222222"
# Okabe and Ito's colours, which also people with colour blindness can distinguish.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F6000")
DASHES = ("", "6 3", "2 2", "8 3 2 3", "1 3", "10 4", "4 1", "6 2 1 2")


def build_svg(advice: Sequence[GroupAdvice]) -> str:
    """The charts of all groups. The ranked options come best first."""
    parts: list[str] = []
    top = MARGIN
    for one in advice:
        ranked = one.ranking.ranked
        parts.append(_text(MARGIN, top + 18, f"{one.group.name}: {one.group.why}", size=15))
        top += HEADING
        for place, it in enumerate(ranked):
            x = MARGIN + place % PER_ROW * WIDTH
            y = top + place // PER_ROW * HEIGHT
            chart = "".join(_list_chart(place, it, one.simulated[it.option]))
            parts.append(f'<g transform="translate({x},{y})">{chart}</g>')
        top += max(1, math.ceil(len(ranked) / PER_ROW)) * HEIGHT if ranked else HEADING
    width, height = PER_ROW * WIDTH + 2 * MARGIN, top + MARGIN
    about = "Spider charts of hosting options. 1, the outer ring, is the target, 0 is unacceptable."
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" role="img">'
        f"<title>Fitness of hosting options</title><desc>{about}</desc>"
        f'<rect width="{width}" height="{height}" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _list_chart(place: int, ranked: RankedOption, simulated: SimulatedOption) -> Iterator[str]:
    colour, dash = COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)]
    title = f"{place + 1}. {ranked.option.value}, shortfall {ranked.shortfall:.3f}"
    yield _text(WIDTH / 2, TITLE_Y, title, anchor="middle", size=14)
    for ring in RINGS:
        corners = " ".join(_point(angle, ring) for angle in range(len(FitAxis)))
        yield f'<polygon points="{corners}" fill="none" stroke="#dddddd"/>'
    values = list(simulated.axes.values())
    for number, value in enumerate(values):
        yield from _list_axis(number, value)
    known = [(number, it.score) for number, it in enumerate(values) if it.score is not None]
    corners = " ".join(_point(number, score) for number, score in known)
    yield (
        f'<polygon points="{corners}" fill="{colour}" fill-opacity="0.15" stroke="{colour}" '
        f'stroke-width="2" stroke-dasharray="{dash}"/>'
    )
    for number, value in enumerate(values):
        yield from _list_band(number, value, colour)


def _list_axis(number: int, value: AxisValue) -> Iterator[str]:
    """The spoke of an axis, and its name and value at the tip."""
    ink = GREY if value.is_assumed or value.score is None else INK
    dash = ' stroke-dasharray="3 3"' if value.is_assumed else ""
    (x0, y0), (x1, y1) = _place(number, 0.0), _place(number, 1.0)
    yield (
        f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{ink}" '
        f'stroke-width="0.7"{dash}/>'
    )
    x, y = _place(number, 1.0 + LABEL_GAP / RADIUS)
    side = x - WIDTH / 2
    anchor = "middle" if abs(side) < 1 else "start" if side > 0 else "end"
    lines = value.text.split(", ")[:MOST_LINES]
    first_y = y - LINE_HEIGHT * len(lines) if y < CENTRE_Y - RADIUS else y
    score = "unknown" if value.score is None else f"{value.score:.2f}"
    yield _text(x, first_y, f"{value.axis.value} {score}", anchor=anchor, colour=ink, size=12)
    for line, text in enumerate(lines):
        label_y = first_y + LINE_HEIGHT * (line + 1)
        yield _text(x, label_y, text, anchor=anchor, colour=ink, size=10)


def _list_band(number: int, value: AxisValue, colour: str) -> Iterator[str]:
    """The spread over the seeds as a thick line on the spoke, and a mark at the mean."""
    if value.score is None or value.score_low is None or value.score_high is None:
        return
    (x0, y0), (x1, y1) = _place(number, value.score_low), _place(number, value.score_high)
    yield (
        f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{colour}" '
        f'stroke-width="6" stroke-opacity="0.4" stroke-linecap="round"/>'
    )
    x, y = _place(number, value.score)
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>'


def _place(number: int, score: float) -> tuple[float, float]:
    """The place of a score on an axis. The first axis points up, the others follow clockwise."""
    angle = 2 * math.pi * number / len(FitAxis) - math.pi / 2
    distance = RADIUS * score
    return WIDTH / 2 + distance * math.cos(angle), CENTRE_Y + distance * math.sin(angle)


def _point(number: int, score: float) -> str:
    x, y = _place(number, score)
    return f"{x:.1f},{y:.1f}"


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", colour: str = INK, size: int = 12
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" '
        f'font-size="{size}">{escape(text)}</text>'
    )
