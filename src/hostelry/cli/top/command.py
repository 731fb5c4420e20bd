"""`hostelry top`."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import UsageError
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json, settled
from hostelry.cli.printable import printable, whole_stream
from hostelry.cli.top.document import SORTS, TopChoice, top_document
from hostelry.cli.top.screen import KEYS, fitting, look_lines

MOST_ROWS = 1000
# A look is taken no sooner than after so many times as long as the last one took.
PATIENCE = 4
SETTLE_S = 2.2  # between two looks of --once: rates of CPU and of tokens are since the first


def top(
    home: HomeOption = None,
    sort: Annotated[
        str, typer.Option(help=f"Order of what is served: {', '.join(SORTS)}.")
    ] = "requests",
    rows: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, help="Maximum number of rows per table.")
    ] = 20,
    part: Annotated[
        str, typer.Option("--filter", help="Show only names that contain this text.")
    ] = "",
    every_s: Annotated[
        float, typer.Option("--every", min=0.2, max=3600.0, help="Seconds between updates.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show processes, instances, and the load of models, live.

    Rates cover the last ten seconds, percentiles the last minute. Keys: q quits, s sorts by the
    next column, / filters by name, j and k change the number of rows. --json prints once, as --once
    does.

    Exit code 1 with --once or --json if control does not answer.

    Example: hostelry top --sort latency

    Example: hostelry top --once --filter chat
    """
    from hostelry.cli.top.sources import TopSources  # completion needs none of what it reads

    if sort not in SORTS:
        raise UsageError(f"--sort is {sort!r}; it must be one of {', '.join(SORTS)}")
    at = home_at(home)
    config, credentials = settled(at)
    choice = TopChoice(sort=sort, rows=rows, part=part)
    with TopSources(at, config, credentials) as sources:
        if once or as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
            sources.look()
            time.sleep(SETTLE_S)
            document = top_document(sources.look(), choice)
            if as_json:
                print_json(document)
            else:
                typer.echo("\n".join(look_lines(document, part)))
            if not document["control_answers"]:
                raise typer.Exit(1)
            return
        live(sources, choice, every_s)


def live(sources: Any, choice: TopChoice, every_s: float) -> None:
    """Show looks until q or Ctrl-C."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=whole_stream(sys.stdout))
    typed: str | None = None  # a filter while it is being typed
    with keys(), Live(console=console, screen=True, auto_refresh=False) as screen:
        look, next_at = sources.look(), 0.0
        while True:
            shown = top_document(look, choice)
            head = f"filter: {typed}_" if typed is not None else KEYS
            lines = [head, "", *look_lines(shown, choice.part)]
            text = "\n".join(fitting(lines, console.width, console.height))
            screen.update(Text(printable(text), no_wrap=True), refresh=True)
            if next_at == 0.0:
                next_at = monotonic_s() + every_s
            key = pressed(max(0.0, next_at - monotonic_s()))
            if typed is None and key in ("q", "\x03"):
                return
            if key is not None:
                typed, choice = after_key(key, typed, choice)
                continue
            began = monotonic_s()
            look = sources.look()
            next_at = began + max(every_s, PATIENCE * (monotonic_s() - began))


def after_key(key: str, typed: str | None, choice: TopChoice) -> tuple[str | None, TopChoice]:
    """The filter that is being typed, if any, and what is shown, after a key. Pure."""
    if typed is not None:
        if key in "\r\n":
            return None, replace(choice, part=typed)
        if key == "\x1b":
            return None, choice
        return (typed[:-1] if key in "\x7f\b" else typed + key), choice
    if key == "/":
        return "", choice
    if key == "s":
        names = list(SORTS)
        return None, replace(choice, sort=names[(names.index(choice.sort) + 1) % len(names)])
    if key in "jk":
        rows = choice.rows + (5 if key == "j" else -5)
        return None, replace(choice, rows=min(MOST_ROWS, max(5, rows)))
    return None, choice


def pressed(within_s: float) -> str | None:
    """The next key, None where none is pressed in time."""
    terminal = sys.stdin.fileno()  # not the text stream: what that has read ahead, select misses
    ready, _, _ = select.select([terminal], [], [], within_s)
    return (os.read(terminal, 1).decode(errors="replace") or "q") if ready else None


@contextmanager
def keys() -> Iterator[None]:
    """The terminal gives each key at once, without showing it."""
    kept = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, kept)
