"""Imports of each command at its start: without those that only other commands need."""

import subprocess
import sys
from pathlib import Path

from tests.cases import case, cases

PROGRAM = """
import sys
from hostelry.cli.main import app
try:
    app(sys.argv[1:])
finally:
    print("\\nloaded:", *sys.modules)
"""
HEAVY = ("numpy", "torch", "matplotlib", "hostelry.sim", "hostelry_lab.catalogue")
# Modules that a process which only starts, watches and calls others must not import.
SLOW = ("botocore", "httpx", "yaml", "starlette", "cryptography", "rich")
# Modules that the list of commands, and completion, must not import either.
NOT_LISTING = (*HEAVY, "httpx", "botocore", "cryptography", "starlette", "asyncio")


@cases(
    "arguments, needed, heavy",
    case("the list of commands", ["--help"], "typer", NOT_LISTING),
    case("the options of up", ["up", "--help"], "hostelry.cli.up", HEAVY),
    case(
        "the status of a home that is none yet",
        ["status", "--home", "HOME"],
        "hostelry.cli.status",
        HEAVY,
    ),
)
def test_a_command_loads_neither_arrays_nor_the_simulator(
    arguments: list[str], needed: str, heavy: tuple[str, ...], tmp_path: Path
) -> None:
    given = [str(tmp_path) if it == "HOME" else it for it in arguments]
    command = [sys.executable, "-c", PROGRAM, *given]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    loaded = set(text.rpartition("\nloaded: ")[2].split())
    assert needed in loaded
    assert not loaded.intersection(heavy)


@cases(
    "module, without",
    case("the supervisor in the background", "hostelry.processes.detached", SLOW),
    case("the command that starts it", "hostelry.cli.up", (*SLOW, "asyncio")),
    case("status", "hostelry.cli.status", (*SLOW, "asyncio")),
    case("ls", "hostelry.cli.models.ls", (*SLOW, "asyncio")),
    case("down", "hostelry.cli.down", (*SLOW, "hostelry.processes.upgrade")),
)
def test_a_module_imports_nothing_slow(module: str, without: tuple[str, ...]) -> None:
    program = f"import sys, {module}\nprint(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded).intersection(without)
