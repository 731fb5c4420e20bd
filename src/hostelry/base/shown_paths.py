"""Paths of this machine in texts for callers, by the names that a container has for them. Pure.

below the folder of instances            shown
--------------------------------------   ------------------------------------
INSTANCE/copies/COPY/model/F             /opt/ml/model/F
INSTANCE/cache/DIGEST/files/F            /opt/ml/models/DIGEST/model/F
INSTANCE/copies/COPY/F                   F
of a Python environment lib/python3.N/F  lib/python3.N/F
below another known folder F             F
"""

import re
from collections.abc import Iterable

MODEL = "/opt/ml/model"
NAME, HEX = r"[\w.-]+", "[0-9a-f]+"
BEFORE, AFTER = r"(?<![\w./~-])", r"(?![\w-]|\.\w)"
SYSTEM = ("/", "/usr", "/usr/local")  # where texts of programs have paths of the system
PYTHON = "lib/python3"
PATH_CHARACTERS = "/._-~"


class ShownPaths:
    """The names. `instances` is the folder of instances, `others` are further folders of ours."""

    def __init__(self, instances: str, others: Iterable[str]) -> None:
        root = re.escape(instances)
        longest_first = sorted(set(others) - {"", *SYSTEM}, key=len, reverse=True)
        copies = rf"{root}/{NAME}/copies/{NAME}(?P<model>/model)?"
        cached = rf"{root}/{NAME}/cache/(?P<digest>{HEX})/files"
        places = "|".join([copies, cached, *map(re.escape, longest_first)])
        self._places = re.compile(rf"{BEFORE}(?:{places}){AFTER}(?P<slash>/?)")

    def text(self, text: str) -> str:
        """The text with these names."""
        return self._places.sub(_name, _without_environments(text)) if "/" in text else text


def _without_environments(text: str) -> str:
    """The text with each path into a Python environment from `PYTHON` on."""
    parts = text.split(PYTHON)
    for at, part in enumerate(parts[:-1]):
        start = len(part)
        while start and (part[start - 1].isalnum() or part[start - 1] in PATH_CHARACTERS):
            start -= 1
        is_address = part.startswith("//", start)
        if part.startswith("/", start) and part.endswith("/") and not is_address:
            parts[at] = part[:start]
    return PYTHON.join(parts)


def _name(found: re.Match[str]) -> str:
    slash = found["slash"]
    if found["model"]:
        return MODEL + slash
    if found["digest"]:
        return f"{MODEL}s/{found['digest']}/model{slash}"
    return "" if slash else found[0].rpartition("/")[2]
