"""Lines of requirements.txt that name packages of the operator's index, and nothing else. Pure."""

import re

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._, -]+\])?"
VERSION = r"\s*(===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+"
MARKER = r"(\s*;[\w\s.<>=!~'\"()]+)?"
REQUIREMENT = re.compile(rf"{NAME}({VERSION}(\s*,{VERSION})*)?{MARKER}")
# Installers take such a name for a file's.
ARCHIVE = re.compile(
    r"[^\s\[;<>=!~]*\.(whl|zip|tar|tgz|tbz|tbz2|txz|tlz|tar\.[a-z0-9]+)([\s\[;<>=!~]|$)",
    re.IGNORECASE,
)


def requirement_lines(text: str) -> tuple[str, ...]:
    """The lines without comments and empty ones."""
    lines = (line.partition(" #")[0].strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def is_plain(line: str) -> bool:
    """Whether it is a package's name, perhaps with versions and a marker."""
    return REQUIREMENT.fullmatch(line) is not None and ARCHIVE.match(line) is None
