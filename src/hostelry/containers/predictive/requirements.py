"""The packages of a model's code/requirements.txt, installed before its framework is imported.

The agent installs packages that copies may share. Otherwise the copy installs them with uv into its
own folder, which precedes the runtime's packages on the path. The index is pip's. The copy
runs uv as its own user, who also runs the model's code.
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
SHARED = "HOSTELRY_CODE_PACKAGES"  # the agent's folder, or empty without packages
INSTALL_S = 1800.0
MAX_BYTES = 64 * 1024
SHOWN_LINES = 20

LOG = logging.getLogger(__name__)


@contextmanager
def provide_packages(
    code_dir: Path, python: Path, environment: Mapping[str, str]
) -> Iterator[Path | None]:
    """A context with the folder of packages, or with None if the code names no packages.

    Raises TerminalError if the operator forbids packages, or with the last lines of uv.
    """
    if SHARED in environment:
        yield Path(environment[SHARED]) if environment[SHARED] else None
        return
    own = install_requirements(code_dir, python, environment)
    try:
        yield own
    finally:
        if own is not None:
            shutil.rmtree(own, ignore_errors=True)


def install_requirements(
    code_dir: Path, python: Path, environment: Mapping[str, str]
) -> Path | None:
    """Install the packages into a new folder. Returns None if the code names no packages."""
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
    LOG.info("installing %s of the model's code", FILE)
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
        LOG.info("%s: %s", FILE, line)
