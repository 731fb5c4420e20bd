"""`hostelry demo`: the main job, end to end, on a platform of its own in a temporary home."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.ports import free_ports
from hostelry.cli.demo_model import demo_model_folder
from hostelry.cli.home_option import home_flag
from hostelry.home.home import UpConfig

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
CLI = (sys.executable, "-m", "hostelry.cli.main")


def demo(
    examples: Annotated[
        Path, typer.Option(help="Folder examples/ of the repository.", show_default=False)
    ] = EXAMPLES,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the platform running and print its home.")
    ] = False,
) -> None:
    """Start a platform, run examples/many_adapters.py against it, and stop it.

    One base model and three LoRA adapters behind plain boto3; a few minutes on two cores.
    """
    program = examples / "many_adapters.py"
    if not program.exists():
        raise TerminalError(f"{program} is missing; give the checkout's examples/ by --examples")
    started_s = monotonic_s()
    say("Preparing the demo model (SmolLM2-135M-Instruct; once, 20 s to a minute) ...")
    model = demo_model_folder()
    home = Path(tempfile.mkdtemp(prefix="hostelry-demo-"))
    try:
        with platform(home, keep=keep):
            say(f"Running {program.name}, which is plain boto3 ...\n")
            program_line = [sys.executable, str(program), "--model", str(model)]
            run([*CLI, "exec", "--home", str(home), "--", *program_line])
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)
    say(f"\nDone in {monotonic_s() - started_s:.0f} s. To continue:\n")
    say("\n".join(next_steps(model)))


def next_steps(model: Path) -> list[str]:
    """What to type after the demo: a platform of one's own, a model on it, a look at it."""
    # `make demo` installs into a virtual environment that need not be active.
    command = (
        "hostelry" if shutil.which("hostelry") else str(Path(sys.executable).parent / "hostelry")
    )
    port = UpConfig(control_port=0).gateway_port
    return [
        f"  {command} up --detach",
        f"  {command} deploy {model}",
        f"  {command} console    # a link to http://127.0.0.1:{port}/console that signs in",
    ]


@contextmanager
def platform(home: Path, *, keep: bool) -> Iterator[None]:
    """A platform on free ports in `home`, stopped at the end unless `keep`."""
    gateway, s3 = free_ports(2)
    say(f"Starting the platform in {home} ...")
    where = ["--home", str(home)]
    try:
        run([*CLI, "up", *where, "--port", str(gateway), "--s3-port", str(s3), "--detach"])
        yield
    finally:
        if keep:
            say(f"The platform keeps running: hostelry status{home_flag(home)}")
        else:
            say("Stopping the platform ...")
            run([*CLI, "down", *where])


def run(command: list[str]) -> None:
    """Run a command in the foreground; raises TerminalError when it fails."""
    # The example runs `hostelry status`, also where no virtual environment is activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PATH": path}
    done = subprocess.run(command, check=False, env=environment)
    if done.returncode:
        raise TerminalError(f"{' '.join(command)} ended with status {done.returncode}")


def say(line: str) -> None:
    """Print and flush, so that progress is visible in a pipe, too."""
    typer.echo(line)
    sys.stdout.flush()
