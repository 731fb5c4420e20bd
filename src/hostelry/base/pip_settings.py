"""The package index that pip is configured for, as uv's arguments: uv does not read pip's."""

import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence

ARGUMENTS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
}
CERTIFICATE = "cert"
# Where two sources name one setting pip takes the later: files, then the environment.
SOURCES = ("site", "global", "user", "install", ":env:")


def read_settings() -> dict[str, str]:
    """What `pip config list` gives by name; nothing where there is no pip."""
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


def uv_arguments(settings: Mapping[str, str]) -> Sequence[str]:
    """The arguments that make uv look where pip looks; the best version of all places is taken."""
    found = ["--index-strategy", "unsafe-best-match"]
    for name, argument in ARGUMENTS.items():
        for place in settings.get(name, "").split():
            found += [argument, place]
    return found


def uv_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """The variables of uv that hold pip's certificates."""
    return {"SSL_CERT_FILE": settings[CERTIFICATE]} if settings.get(CERTIFICATE) else {}
