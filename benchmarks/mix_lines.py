"""Measured points as lines for a mix of `hostelry fit`, and the options that ask for them."""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import hardware

MAX_NUMBERS, MAX_NUMBER = 20, 100_000


def add_mix_arguments(parser: argparse.ArgumentParser) -> None:
    """Let ``--mix-lines [FILE]`` print the lines, or write a new file."""
    group = parser.add_argument_group("lines for a mix of hostelry fit")
    group.add_argument(
        "--mix-lines", nargs="?", const="", metavar="FILE", help="print them, or write a new FILE"
    )
    group.add_argument("--ranks", type=parse_numbers, help="ranks of adapters, as 8,16,64")
    group.add_argument("--rounds", type=int, choices=range(1, 101), metavar="1-100")
    group.add_argument("--base", help="the base model's name in a mix with several such bases")


def parse_numbers(text: str) -> tuple[int, ...]:
    """Whole numbers that are parted by commas, in order. Raises ArgumentTypeError."""
    parts = text.split(",", MAX_NUMBERS)
    if len(parts) > MAX_NUMBERS:
        raise argparse.ArgumentTypeError(f"more than {MAX_NUMBERS} numbers")
    for part in parts:
        is_number = part.isascii() and part.isdecimal() and len(part) <= len(str(MAX_NUMBER))
        if not is_number or not 1 <= int(part) <= MAX_NUMBER:
            raise argparse.ArgumentTypeError(
                f"{part[:20]!r} is not a whole number from 1 to {MAX_NUMBER:,}"
            )
    return tuple(sorted({int(it) for it in parts}))


def check_mix_arguments(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Refuse options that would have no effect, and a file that exists or has no folder."""
    if arguments.mix_lines is None:
        for name in ("ranks", "rounds", "base"):
            if getattr(arguments, name) is not None:
                parser.error(f"--{name} goes with --mix-lines")
        return
    if arguments.compare:
        parser.error("--compare does not go with --mix-lines")
    base = arguments.base
    if base is not None and not (base.isascii() and base.replace("-", "").isalnum()):
        parser.error(f"--base is {base!r}; a model's name in a mix has letters, digits and hyphens")
    file = Path(arguments.mix_lines)
    if arguments.mix_lines and (file.exists() or not file.absolute().parent.is_dir()):
        why = "exists" if file.exists() else "has no folder"
        parser.error(f"--mix-lines: {file} {why}; name a new file")


def describe_circumstances(model: Path, options: Mapping[str, Any]) -> str:
    """One line on a measurement: its day, machine, model and options."""
    machine, day = hardware(), time.strftime("%Y-%m-%d", time.gmtime())
    settings = ", ".join(f"{name} {value}" for name, value in options.items())
    text = f"{day}, {machine['cpu']}, {machine['cores']} cores, {model.resolve().name}, {settings}"
    return "".join(it if it.isprintable() else "?" for it in text)


def format_mix_lines(points: Sequence[Mapping[str, Any]], base: str | None, about: str) -> str:
    """The points as tables of a mix. `about` is one line."""
    lines = [f"# By `python -m benchmarks.many_adapters --mix-lines`: {about}"]
    for point in points:
        lines.append("[[platform.adapter_throughput]]")
        if base is not None:
            lines.append(f'base = "{base}"')
        lines += [f"rank = {point['rank']}", f"adapters = {point['adapters']}"]
        lines.append(f"tokens_per_s = {point['tokens/s']:.6g}")
    return "\n".join(lines) + "\n"


def put_mix_lines(lines: str, file: str) -> None:
    """Print the lines, and write them to `file` if it has a name."""
    print(f"\n{lines}", end="")
    if file:
        with Path(file).open("x", encoding="utf-8") as written:
            written.write(lines)
        print(f"\nwritten to {file}")
