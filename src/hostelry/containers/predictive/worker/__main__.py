"""Entry of the worker program: ``python FOLDER/__main__.py --socket-fd N --parent PID``."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

PACKAGE = "hostelry.containers.predictive.worker"


def show_own_package() -> None:
    """Make the folder of this file importable as PACKAGE, and nothing else of the platform.

    The packages above it are empty modules here.
    """
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or os.curdir) != folder]
    names = PACKAGE.split(".")
    for length in range(1, len(names) + 1):
        package = ModuleType(".".join(names[:length]))
        package.__path__ = [folder] if length == len(names) else []
        sys.modules[package.__name__] = package


if __name__ == "__main__":
    show_own_package()
    sys.exit(importlib.import_module(PACKAGE + ".zygote").main())
