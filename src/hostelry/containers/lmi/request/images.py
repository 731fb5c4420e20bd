"""Images in the messages of a chat: accepted kinds, and the places of their bytes. Pure.

    {"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}   the bytes themselves
    {"type": "image_url", "image_url": {"url": "https://HOST/..."}}            HOST must be allowed
    {"type": "input_image", "image_url": "..."}                                the same, in short

The template gets `{"type": "image"}` in the part's place. Source: OpenAI's chat completions and
vLLM's multimodal inputs.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from hostelry.containers.lmi.refusal import bad_request
from hostelry.containers.lmi.request.fields import BodyFields, show

KINDS = ("image_url", "input_image")
DETAILS = ("auto", "low", "high", "original")
DATA = re.compile(r"data:(image/[a-z0-9.+-]{1,40});base64,", re.IGNORECASE)
MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
MAX_URL_CHARACTERS = 8192
TEMPLATE_PART = {"type": "image"}


class ImageLimits(msgspec.Struct, frozen=True, kw_only=True):
    """At most `most` images per request, each of `max_bytes`, from addresses in `domains`.

    `why_none` is the reason if images are refused.
    """

    most: int = 0
    max_bytes: int = 20 << 20
    domains: frozenset[str] = frozenset()
    why_none: str = "this model reads text only"


NO_IMAGES = ImageLimits()


class ImageSource(msgspec.Struct, frozen=True, kw_only=True):
    """One image: its bytes, or the address of its bytes. `where` names its part for messages."""

    where: str
    data: bytes = b""
    url: str | None = None


class ChatImages(msgspec.Struct):
    """The images of a chat, in the order of its parts."""

    limits: ImageLimits
    sources: list[ImageSource] = msgspec.field(default_factory=list)

    def take(self, part: BodyFields, where: str) -> dict[str, Any]:
        """The part for the template. The image is added to `sources`. Raises Refusal."""
        most = self.limits.most
        if not most:
            raise bad_request(f"{where} has an image; {self.limits.why_none}", where)
        if len(self.sources) >= most:
            raise bad_request(
                f"the messages have more than {most} images (limit_mm_per_prompt)", where
            )
        self.sources.append(parse_image(part, where, self.limits))
        return dict(TEMPLATE_PART)


def parse_image(part: BodyFields, where: str, limits: ImageLimits) -> ImageSource:
    """The image of a part. Raises Refusal."""
    given = part.raw("image_url")
    if isinstance(given, dict):
        members = BodyFields(given, f"{where}.image_url")
        detail = members.text("detail")
        if detail is not None and detail not in DETAILS:
            raise bad_request(
                f"{where}.image_url.detail is {show(detail)}; it must be one of "
                f"{', '.join(DETAILS)}",
                where,
            )
        given = members.raw("url")
    if not isinstance(given, str) or not given:
        raise bad_request(f"{where}.image_url has no url", where)
    if given[:5].lower() == "data:":
        return ImageSource(where=where, data=decode_data_uri(given, where, limits.max_bytes))
    return ImageSource(where=where, url=allowed_url(given, where, limits.domains))


def decode_data_uri(uri: str, where: str, max_bytes: int) -> bytes:
    """The bytes of a data URI. Raises Refusal."""
    head = DATA.match(uri)
    if head is None or head[1].lower() not in MEDIA_TYPES:
        raise bad_request(
            f"{where} has an image as {show(uri[:60])}; a data URI begins with data:TYPE;base64, "
            f"where TYPE is one of {', '.join(MEDIA_TYPES)}",
            where,
        )
    encoded = uri[head.end() :]
    if len(encoded) > (max_bytes + 2) // 3 * 4:
        raise bad_request(f"{where} has an image of more than {max_bytes} bytes", where)
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_request(f"{where} has an image that is no base64: {error}", where) from error
    if not data:
        raise bad_request(f"{where} has an image of no bytes", where)
    return data


def allowed_url(url: str, where: str, domains: frozenset[str]) -> str:
    """An address that the operator allows. Raises Refusal."""
    try:
        parts = urlsplit(url)
        host, has_user = (parts.hostname or "").lower(), "@" in parts.netloc
    except ValueError as error:
        raise bad_request(f"{where} has an address that is none: {error}", where) from error
    if parts.scheme not in ("http", "https") or not host or has_user:
        raise bad_request(
            f"{where} has an image at {show(url[:200])}; it must be a data URI, or http or https",
            where,
        )
    if host not in domains:
        allowed = ", ".join(sorted(domains)) or "none"
        raise bad_request(
            f"{where} has an image at {host}, which is not allowed; allowed are: {allowed} "
            "(HOSTELRY_MEDIA_DOMAINS, option.allowed_media_domains). Send it as a data URI",
            where,
        )
    if len(url) > MAX_URL_CHARACTERS:
        raise bad_request(f"{where} has an address of {len(url)} characters", where)
    return url


def as_parts(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with each content as a list of parts, as templates of such models read them."""
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        if isinstance(message["content"], str)
        else message
        for message in messages
    ]


def join_texts(content: object) -> str:
    """The text of a content that is text, parts, or null."""
    if isinstance(content, list):
        return "".join(it.get("text", "") for it in content)
    return content if isinstance(content, str) else ""
