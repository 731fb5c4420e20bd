"""The packages that an author's requirements.txt names, where the operator installs them.

Only names with versions are accepted: no URL, path or option of pip, so that the operator's index
alone is asked. Only wheels are installed, so that no code of a package runs meanwhile.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from hostelry.base.errors import HostelryError
from hostelry.base.requirement_lines import is_plain, requirement_lines
from hostelry.containers.code.code_places import SECRETS, is_like

MAX_BYTES = 64 * 1024
MAX_LINES = 200
SHOWN_CHARACTERS = 1000
KEPT = ("PATH", "LANG", "LC_*", "HOME", "TMPDIR", "PIP_*", "*_PROXY", "*_proxy", "SSL_CERT_*",
        "REQUESTS_CA_BUNDLE", "PYTHONNOUSERSITE", "PYTHONPATH")  # fmt: skip


class RequirementsError(HostelryError):
    """The packages cannot be installed; the message has the line or pip's reason."""


def parse_requirements(text: str) -> tuple[str, ...]:
    """The requirements. Raises RequirementsError for any other line of pip's files."""
    found = requirement_lines(text)
    if len(found) > MAX_LINES:
        raise RequirementsError(f"requirements.txt has {len(found)} lines; at most {MAX_LINES}")
    for line in found:
        if not is_plain(line):
            raise RequirementsError(
                f"requirements.txt has {line[:80]!r}; a line must be a package's name, perhaps "
                "with versions and a marker: no URL, path or option"
            )
    return found


def install_requirements(
    file: Path, target: Path, environment: Mapping[str, str], limit_s: float
) -> None:
    """Install the packages of `file` into `target`. Raises RequirementsError."""
    try:
        if file.stat().st_size > MAX_BYTES:
            raise RequirementsError(f"requirements.txt has more than {MAX_BYTES} bytes")
        names = parse_requirements(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RequirementsError(f"requirements.txt cannot be read: {error}") from error
    if not names:
        return
    kept = {
        name: it
        for name, it in environment.items()
        if is_like(name, KEPT) and (name.lower().endswith("_proxy") or not is_like(name, SECRETS))
    }
    command = [
        sys.executable, "-P", "-m", "pip", "install", "--only-binary", ":all:", "--no-input",
        "--disable-pip-version-check", "--no-warn-script-location", "--no-compile",
        "--target", str(target), "--", *names,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, env=kept, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=limit_s, cwd=os.sep, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise RequirementsError(
            f"requirements.txt was not installed within {limit_s:g} s (model_loading_timeout)"
        ) from None
    if done.returncode:
        reason = done.stdout.decode(errors="replace")[-SHOWN_CHARACTERS:].strip()
        raise RequirementsError(f"requirements.txt cannot be installed: {reason}")
