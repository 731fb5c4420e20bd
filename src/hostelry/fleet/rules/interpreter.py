"""Python's options for running among untrusted files.

The program and its children import no modules from the working folder, nor from the packages of a
user's home, unless Hostelry itself is installed there.
"""

import site
import sys
from collections.abc import Mapping
from pathlib import Path


def is_below(path: Path, folder: str | None) -> bool:
    """Whether `path` lies in `folder`. False without a folder."""
    return folder is not None and path.resolve().is_relative_to(Path(folder).resolve())


def safe_flags(needs_user_site: bool) -> tuple[str, ...]:
    """Options of the command line."""
    return ("-P",) if needs_user_site else ("-P", "-s")


def safe_variables(needs_user_site: bool) -> Mapping[str, str]:
    """Variables with the same effect on a Python that the program starts."""
    safe_path = {"PYTHONSAFEPATH": "1"}
    return safe_path if needs_user_site else {**safe_path, "PYTHONNOUSERSITE": "1"}


_FOR_ONE_USER = is_below(Path(__file__), site.USER_SITE)
PYTHON = (sys.executable, *safe_flags(_FOR_ONE_USER))
PYTHON_VARIABLES = safe_variables(_FOR_ONE_USER)
