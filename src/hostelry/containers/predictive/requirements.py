"""The packages of a model's code/requirements.txt, installed before its framework is imported.

The agent has installed those that copies may share. Else they come into a folder of this copy,
before the runtime's own on the path, by uv, from the index that pip is configured for. The copy
does it as its own user, who runs the model's code anyway.
"""

import logging
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from uv import find_uv_bin

from hostelry.base.errors import TerminalError
from hostelry.base.operator_secrets import without_logins
from hostelry.base.pip_settings import UV_ARGUMENTS, read_settings, uv_variables

FILE = "requirements.txt"
POLICY = "HOSTELRY_CUSTOM_CODE_REQUIREMENTS"
REFUSE = "refuse"
SHARED = "HOSTELRY_CODE_PACKAGES"  # the folder of the agent's; empty where none are needed
INSTALL_S = 1800.0
MAX_BYTES = 64 * 1024
SHOWN_LINES = 20

log = logging.getLogger(__name__)


@contextmanager
def packages_of(
    code_dir: Path, python: Path, environment: Mapping[str, str]
) -> Iterator[Path | None]:
    """The folder of packages, meanwhile; None where the code names none.

    Raises TerminalError where the operator refuses it, or with the tool's last lines.
    """
    if SHARED in environment:
        yield Path(environment[SHARED]) if environment[SHARED] else None
        return
    own = installed_requirements(code_dir, python, environment)
    try:
        yield own
    finally:
        if own is not None:
            shutil.rmtree(own, ignore_errors=True)


def installed_requirements(
    code_dir: Path, python: Path, environment: Mapping[str, str]
) -> Path | None:
    """A new folder of installed packages; None where the code names none.

    Raises TerminalError as `packages_of`.
    """
    file = code_dir / FILE
    if not file.is_file():
        return None
    if environment.get(POLICY) == REFUSE:
        raise TerminalError(
            f"the model's code has a {FILE}, and the operator has {POLICY}={REFUSE}: leave it out, "
            "and use what the runtime has"
        )
    if file.stat().st_size > MAX_BYTES:
        raise TerminalError(f"{FILE} has more than {MAX_BYTES} bytes")
    target = Path(tempfile.mkdtemp(prefix="hostelry-packages-"))
    log.info("installing %s of the model's code", FILE)
    try:
        install(file, target, python, environment)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return target


def install(file: Path, target: Path, python: Path, environment: Mapping[str, str]) -> None:
    """Install the packages of `file` into `target`. Raises TerminalError."""
    settings = read_settings()
    command = [
        find_uv_bin(), "--no-config", "--no-progress", "pip", "install", "--python", str(python),
        "--target", str(target), "--no-cache", *UV_ARGUMENTS, "-r", str(file),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command,
            env={**environment, **uv_variables(settings)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=INSTALL_S,
            cwd=file.parent,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TerminalError(f"{FILE} was not installed within {INSTALL_S:g} s") from None
    printed = done.stdout.strip().splitlines()[-SHOWN_LINES:]
    lines = [without_logins(it.decode("utf-8", "replace")) for it in printed]
    if done.returncode:
        raise TerminalError(f"{FILE} cannot be installed: " + " ".join(it.strip() for it in lines))
    for line in lines:
        log.info("%s: %s", FILE, line)
