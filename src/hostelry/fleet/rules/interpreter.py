"""How Python is started beside files that nobody vouches for.

Neither the working folder nor the packages of a user's home are searched for modules, in the
program and in what it starts. A Hostelry that was installed for one user lies among the latter.
"""

import site
import sys
from collections.abc import Mapping
from pathlib import Path


def is_below(path: Path, folder: str | None) -> bool:
    """Whether `path` lies in `folder`, which may be None."""
    return folder is not None and path.resolve().is_relative_to(Path(folder).resolve())


def safe_flags(needs_user_site: bool) -> tuple[str, ...]:
    """Python's options."""
    return ("-P",) if needs_user_site else ("-P", "-s")


def safe_variables(needs_user_site: bool) -> Mapping[str, str]:
    """The same for a Python that the program starts."""
    safe_path = {"PYTHONSAFEPATH": "1"}
    return safe_path if needs_user_site else {**safe_path, "PYTHONNOUSERSITE": "1"}


_FOR_ONE_USER = is_below(Path(__file__), site.USER_SITE)
PYTHON = (sys.executable, *safe_flags(_FOR_ONE_USER))
PYTHON_VARIABLES = safe_variables(_FOR_ONE_USER)
