"""The packages of a model's code/requirements.txt, installed before its framework is imported.

They come into a folder of this copy, before the runtime's own on the path, by uv, from the index
that pip is configured for. The copy does it as its own user, who runs the model's code anyway.
"""

import logging
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from uv import find_uv_bin

from hostelry.base.errors import TerminalError
from hostelry.base.pip_settings import read_settings, uv_arguments, uv_variables

FILE = "requirements.txt"
POLICY = "HOSTELRY_CUSTOM_CODE_REQUIREMENTS"
REFUSE = "refuse"
INSTALL_S = 1800.0
MAX_BYTES = 64 * 1024
SHOWN_LINES = 20

log = logging.getLogger(__name__)


def installed_requirements(
    code_dir: Path, python: Path, environment: Mapping[str, str]
) -> Path | None:
    """The folder of installed packages; None where the code names none.

    Raises TerminalError where the operator refuses it, or with the tool's last lines.
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
        "--target", str(target), "--no-cache", *uv_arguments(settings), "-r", str(file),
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
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()[-SHOWN_LINES:]
    if done.returncode:
        raise TerminalError(f"{FILE} cannot be installed: " + " ".join(it.strip() for it in lines))
    for line in lines:
        log.info("%s: %s", FILE, line)
