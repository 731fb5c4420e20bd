"""Text of the systemd unit that runs `hostelry up` in the foreground. Pure."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

STOP_WITHIN_S = 120
PLAIN = re.compile(r"[A-Za-z0-9_./:=@,+-]+")  # no quote, no separator, no lone semicolon
UNIT = """\
[Unit]
Description=Hostelry on {home}
After=network.target

[Service]
Type=exec
ExecStart={command}
# Only `up` itself is signalled. It stops all else in good order, and where it is killed all else
# serves on and is adopted by the `up` that systemd starts.
KillMode=process
KillSignal=SIGTERM
TimeoutStopSec={stop_within_s}
Restart=on-failure
RestartSec=1
# The control groups of copies are made below this one.
Delegate=yes

[Install]
WantedBy=default.target
"""


def unit_text(program: Sequence[str], arguments: Sequence[str], home: Path) -> str:
    """The unit for `program` with the arguments that `up` was given, on the home at `home`."""
    command = [*program, *_keep_arguments(arguments), "--home", str(home)]
    return UNIT.format(
        home=str(home).replace("%", "%%"),
        command=" ".join(map(quote, command)),
        stop_within_s=STOP_WITHIN_S,
    )


def _keep_arguments(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments without --home, which is added later, and without options useless in a unit."""
    words = iter(arguments)
    for word in words:
        if word == "--home":
            next(words, None)
        elif not word.startswith("--home=") and word not in ("--print-unit", "--detach"):
            yield word


def quote(word: str) -> str:
    """Quote a word of ExecStart, as in systemd.service(5), "Command lines"."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return word if escaped == word and PLAIN.fullmatch(word) else f'"{escaped}"'
