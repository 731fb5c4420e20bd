"""Images: how many a request may have, and which hosts they come from. Pure.

The operator allows hosts; the model's option can leave some of them out.
"""

import re
from collections.abc import Mapping

from hostelry.base.json import decode
from hostelry.containers.lmi.settings.option_reader import OptionReader, invalid_setting
from hostelry.containers.lmi.settings.options import Setting

VARIABLE = "HOSTELRY_MEDIA_DOMAINS"
MOST = 256
HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def parse_most_images(text: str) -> int:
    """The images of ``{"image": 2}`` or ``image=2``. Raises ValueError."""
    if text.lstrip().startswith("{"):
        members = decode(text.encode(), dict[str, int])
    else:
        pairs = (it.partition("=") for it in text.split(","))
        members = {name.strip(): int(value) for name, _, value in pairs}
    others = {name for name, count in members.items() if count} - {"image"}
    if others:
        raise ValueError(f"{', '.join(sorted(others))} cannot be sent; images alone can")
    most = members.get("image", 0)
    if not 1 <= most <= MOST:
        raise ValueError(f'it must be {{"image": N}}, where N is 1 to {MOST}')
    return most


def media_domains(env: Mapping[str, str], read: OptionReader) -> frozenset[str]:
    """The hosts that images are fetched from. Raises ConfigurationError."""
    wanted: frozenset[str] | None = read.parsed("allowed_media_domains", parse_domains)
    given = env.get(VARIABLE, "")
    try:
        allowed = parse_domains(given)
    except ValueError as error:
        raise invalid_setting(Setting(given, VARIABLE), f"a list of hosts: {error}") from None
    return allowed if wanted is None else allowed & wanted


def parse_domains(text: str) -> frozenset[str]:
    """The hosts of a JSON list, or of a list with commas. Raises ValueError."""
    is_json = text.lstrip().startswith("[")
    names = decode(text.encode(), list[str]) if is_json else text.split(",")
    found = frozenset(it.strip().lower() for it in names if it.strip())
    for name in found:
        if not HOST.fullmatch(name):
            raise ValueError(f"{name[:100]!r} is no host name")
    return found
