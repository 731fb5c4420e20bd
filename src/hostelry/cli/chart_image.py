"""The chart of `hostelry fit` as PNG, drawn from its SVG (extra `charts`)."""

import math
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import resvg_py

from hostelry.base.errors import TerminalError

SCALE, MAX_PIXELS = 2.0, 60_000_000  # four bytes each
FONT, FONT_FILES = "DejaVu Sans", ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")


def draw_png(svg: str) -> bytes:
    """The picture, twice as large as the SVG, or as large as MAX_PIXELS allows.

    The letters are matplotlib's, so that the picture does not depend on the fonts of the machine.
    """
    fonts = Path(mpl.get_data_path()) / "fonts" / "ttf"
    try:
        return resvg_py.svg_to_bytes(
            svg_string=svg,
            zoom=find_scale(svg),
            skip_system_fonts=True,
            font_files=[str(fonts / it) for it in FONT_FILES],
            sans_serif_family=FONT,
        )
    except ValueError as error:
        raise TerminalError(f"the chart cannot be drawn as PNG: {error}; use --svg") from None


def find_scale(svg: str) -> float:
    """The pixels of the picture for one of the SVG, at most SCALE."""
    root = ElementTree.fromstring(svg)
    pixels = float(root.get("width", "1")) * float(root.get("height", "1"))
    return min(SCALE, math.sqrt(MAX_PIXELS / pixels))
