"""The package index that pip is configured for, and lines of a requirements.txt that it serves."""

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping

# The package index that pip is configured for, as uv's variables: uv does not read pip's.
#
# An index may have a password, and every user of the machine can read a process's arguments.


# Each with what stands between its places.
VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
}
# The best version of all places is taken, as by pip.
UV_ARGUMENTS = ("--index-strategy", "unsafe-best-match")
CERTIFICATE = "cert"
# Where two sources name one setting pip takes the later: files, then the environment.
SOURCES = ("site", "global", "user", "install", ":env:")


def read_settings() -> dict[str, str]:
    """Return the settings of `pip config list` by name. Empty without pip."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        check=False,
    )
    return parse_settings(done.stdout)


def parse_settings(text: str) -> dict[str, str]:
    """Settings by their names of lines as ``global.index-url='https://...'``."""
    found: dict[str, tuple[int, str]] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        source, _, name = key.rpartition(".")
        if not equals or source not in SOURCES:
            continue
        rank = SOURCES.index(source)
        if rank >= found.get(name, (0, ""))[0]:
            found[name] = (rank, " ".join(shlex.split(value)).replace("\\n", " ").strip())
    return {name: value for name, (_, value) in found.items()}


def uv_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """The variables that make uv look where pip looks, with pip's certificates."""
    found = {CERTIFICATE: ("SSL_CERT_FILE", " "), **VARIABLES}
    return {
        variable: between.join(places)
        for name, (variable, between) in found.items()
        if (places := settings.get(name, "").split())
    }


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
