"""Imports of each command at its start: without those that only other commands need."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from hostelry.cli.main import app
try:
    app(sys.argv[1:])
finally:
    print("\\nloaded:", *sys.modules)
"""
HEAVY = ("numpy", "torch", "matplotlib", "hostelry.sim", "hostelry_lab.catalogue")
# What a process that only starts, watches and asks others does without.
SLOW = ("botocore", "httpx", "yaml", "starlette", "cryptography", "rich")
# What the list of commands, and completion, do without as well.
NOT_LISTING = (*HEAVY, "httpx", "botocore", "cryptography", "starlette", "asyncio")


@pytest.mark.parametrize(
    ("arguments", "needed", "heavy"),
    [
        pytest.param(["--help"], "typer", NOT_LISTING, id="the list of commands"),
        pytest.param(["up", "--help"], "hostelry.cli.up", HEAVY, id="the options of up"),
        pytest.param(
            ["status", "--home", "HOME"],
            "hostelry.cli.status",
            HEAVY,
            id="the status of a home that is none yet",
        ),
    ],
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


@pytest.mark.parametrize(
    ("module", "without"),
    [
        pytest.param("hostelry.processes.detached", SLOW, id="the supervisor in the background"),
        pytest.param("hostelry.cli.up", (*SLOW, "asyncio"), id="the command that starts it"),
        pytest.param("hostelry.cli.status", (*SLOW, "asyncio"), id="status"),
        pytest.param("hostelry.cli.models.ls", (*SLOW, "asyncio"), id="ls"),
        pytest.param("hostelry.cli.down", SLOW, id="down"),
    ],
)
def test_a_module_imports_nothing_slow(module: str, without: tuple[str, ...]) -> None:
    program = f"import sys, {module}\nprint(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded).intersection(without)
