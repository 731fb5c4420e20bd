"""The folders of this machine that texts for callers do not name."""

import sys
from collections.abc import Mapping
from pathlib import Path

import hostelry
from hostelry.base.runtimes import runtimes_folder
from hostelry.base.shown_paths import ShownPaths
from hostelry.home.home import Home


def shown_paths(home: Home, operator: Mapping[str, str]) -> ShownPaths:
    """The names of the home's files, of the runtimes and of our own packages."""
    own = Path(hostelry.__file__).parent.parent
    folders = (home.root, home.root.resolve(), runtimes_folder(operator), own, sys.prefix)
    return ShownPaths(str(home.instances), map(str, folders))
