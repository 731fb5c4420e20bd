"""Images for vLLM: decoded within limits of format and size."""

import io
from collections.abc import Sequence
from typing import Any

from PIL import Image, UnidentifiedImageError

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
MAX_PIXELS = 32 << 20


def decode_images(images: Sequence[bytes]) -> list[Any]:
    """Each image, or an animation's first frame, in RGB. Raises ValueError with its number."""
    return [decode_image(data, f"image {number}") for number, data in enumerate(images, 1)]


def decode_image(data: bytes, title: str) -> Any:
    """One image. Raises ValueError."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            if width * height > MAX_PIXELS or not width * height:
                raise ValueError(
                    f"{title} has {width} x {height} pixels; at most {MAX_PIXELS} are read"
                )
            return image.convert("RGB")
    except UnidentifiedImageError as error:
        raise ValueError(f"{title} is none of {', '.join(FORMATS)}") from error
    except (OSError, SyntaxError, Image.DecompressionBombError, EOFError) as error:
        raise ValueError(f"{title} cannot be read: {error}") from error
