"""Files of adapters in page form, which are loaded from disk without parsing PEFT's files again.

A line of JSON, then the image. The sum over the image detects a truncated or corrupted file. It
does not protect against a process that may write into the folder, which belongs to the engine.
"""

import json
from collections.abc import Callable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy

from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.image import AdapterSummary, HostAdapter, PageImage
from hostelry.engine.lora.layout import AdapterLayout, AdapterRanks, AdapterScales

_MAX_LINE_BYTES = 1 << 20
_FORMAT = 1


def save_image(adapter: HostAdapter, path: Path) -> int:
    """Write the adapter to `path`. Returns the file's size in bytes. Raises OSError."""
    summary, ranks, scales = adapter.summary, adapter.layout.ranks, adapter.scales
    line = {
        "format": _FORMAT,
        "content_id": summary.content_id,
        "page_elements": adapter.layout.page_elements,
        "dtype": str(adapter.image.elements.dtype),
        "ranks": [ranks.linears, ranks.embedding, ranks.lm_head],
        "scales": [scales.linears, scales.embedding, scales.lm_head],
        "target_modules": summary.target_modules,
        "warnings": adapter.warnings,
        "sum": _sum_bytes(adapter.image),
    }
    with path.open("wb") as file:
        file.write(json.dumps(line).encode() + b"\n")
        file.write(adapter.image.content)
        return file.tell()


def load_image(
    path: Path, content_id: str, new_image: Callable[[AdapterRanks], PageImage]
) -> HostAdapter:
    """The adapter in the file, in an image that `new_image` makes for its ranks.

    Raises AdapterError if the file is damaged or holds another content or form, and OSError if it
    cannot be read.
    """
    with path.open("rb") as file:
        line = _read_line(file)
        try:
            return _read_adapter(file, line, content_id, new_image)
        except (KeyError, TypeError, ValueError) as error:
            raise AdapterError(f"{path.name} is damaged: {error}") from error


def _read_line(file: BufferedReader) -> Mapping[str, Any]:
    try:
        line = json.loads(file.readline(_MAX_LINE_BYTES))
    except ValueError as error:
        raise AdapterError("the image's first line is not JSON") from error
    if not isinstance(line, dict) or line.get("format") != _FORMAT:
        raise AdapterError("the image is of another format")
    return line


def _read_adapter(
    file: BufferedReader,
    line: Mapping[str, Any],
    content_id: str,
    new_image: Callable[[AdapterRanks], PageImage],
) -> HostAdapter:
    ranks = AdapterRanks(
        linears=tuple(line["ranks"][0]), embedding=line["ranks"][1], lm_head=line["ranks"][2]
    )
    image = new_image(ranks)
    layout: AdapterLayout = image.layout
    form = (content_id, layout.page_elements, str(image.elements.dtype))
    if form != (line["content_id"], line["page_elements"], line["dtype"]):
        raise AdapterError("the image is of another content or form")
    if file.readinto(image.content) != image.num_bytes or _sum_bytes(image) != line["sum"]:
        raise AdapterError("the image is damaged")
    scales = line["scales"]
    return HostAdapter(
        summary=AdapterSummary(
            content_id=content_id,
            rank=ranks.largest,
            target_modules=tuple(line["target_modules"]),
            num_bytes=image.num_bytes,
            num_pages=layout.num_pages,
        ),
        layout=layout,
        scales=AdapterScales(linears=tuple(scales[0]), embedding=scales[1], lm_head=scales[2]),
        image=image,
        warnings=tuple(line["warnings"]),
    )


def _sum_bytes(image: PageImage) -> int:
    """The image's bytes as whole numbers, summed."""
    content = numpy.frombuffer(image.content, numpy.uint8)
    whole = len(content) // 8 * 8
    words = content[:whole].view(numpy.uint64)
    return int(words.sum(dtype=numpy.uint64)) + int(content[whole:].sum())
