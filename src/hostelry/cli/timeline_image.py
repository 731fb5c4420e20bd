"""A target's load, capacity and activities over time as a picture (extra `charts`)."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hostelry.cli.timeline import MARKS, NAMES_OF_ACTS, get_unit, heading, receipt_text

LINES = {"t0": ":", "t1": "--", "t2": "-"}
CANVASES = {".png": FigureCanvasAgg, ".svg": FigureCanvasSVG}


def save(timelines: Sequence[Mapping[str, Any]], since: float, now: float, path: Path) -> None:
    """Write a picture of every target, PNG or SVG by the path's suffix. Raises OSError."""
    figure = Figure(figsize=(11.0, 4.5 * max(1, len(timelines))), layout="constrained")
    kind = CANVASES[path.suffix.lower()](figure)
    grid = figure.subplots(2 * len(timelines), 1, sharex=True, squeeze=False)
    for number, timeline in enumerate(timelines):
        load, capacity = grid[2 * number][0], grid[2 * number + 1][0]
        draw_load(load, timeline)
        draw_capacity(capacity, timeline, now)
        for axes in (load, capacity):
            draw_acts(axes, timeline["acts"])
    bottom = grid[-1][0]
    bottom.set_xlim(instant(since), instant(now))
    here = datetime.fromtimestamp(now, UTC).astimezone().tzinfo
    times = DateFormatter("%H:%M:%S", tz=here)  # type: ignore[no-untyped-call] # matplotlib's
    bottom.xaxis.set_major_formatter(times)
    kind.print_figure(path, dpi=120)


def draw_load(axes: Axes, timeline: Mapping[str, Any]) -> None:
    """Draw the requests in flight, and the arrivals per second."""
    series = timeline["series"]
    axes.set_title(heading(timeline), loc="left", fontsize=10)
    axes.plot(*split_points(series.get("in_flight", ())), label="in flight", color="tab:blue")
    axes.plot(
        *split_points(series.get("arrivals", ())), label="arrivals/s", color="tab:gray", lw=0.7
    )
    axes.set_ylabel("requests")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", fontsize=8)


def draw_capacity(axes: Axes, timeline: Mapping[str, Any], now: float) -> None:
    """Draw desired and serving capacity as steps up to now."""
    for name, color in (("desired", "tab:orange"), ("serving", "tab:green")):
        points = list(timeline["series"].get(name, ()))
        points += [(now, points[-1][1])] if points else []
        axes.step(*split_points(points), where="post", label=name, color=color)
    axes.set_ylabel(get_unit(timeline))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="upper left", fontsize=8)


def draw_acts(axes: Axes, acts: Sequence[Mapping[str, Any]]) -> None:
    """Draw a line at each instant of an act, with the act's letter at the top of t1."""
    for name, act in zip(NAMES_OF_ACTS, acts, strict=False):
        receipt = act.get("receipt") or {}
        for key, _, _ in MARKS:
            if receipt.get(key) is not None:
                axes.axvline(instant(receipt[key]), ls=LINES[key], color="tab:red", lw=0.8)
        if receipt.get("t1") is not None:
            axes.annotate(
                f"{name}: {act['from']} to {act['to']}",
                (instant(receipt["t1"]), 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(-10, -4),
                textcoords="offset points",
                fontsize=7,
                va="top",
                rotation=90,
                gid=receipt_text(receipt),
            )


def split_points(points: Sequence[Sequence[float]]) -> tuple[list[Any], list[float]]:
    """Instants and values of `points`."""
    return [instant(at) for at, _ in points], [value for _, value in points]


def instant(at: float) -> Any:
    """An instant in the form that matplotlib takes."""
    return datetime.fromtimestamp(at, UTC)
