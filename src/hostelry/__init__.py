"""Hostelry: self-hosted model hosting that speaks Amazon SageMaker's inference APIs."""

import sys
from types import ModuleType

__version__ = "0.1.0"

# httpx imports its command line, and with it rich and pygments, unless that import fails: a third
# of the time of `import httpx`, and 5 MB of each process.
sys.modules.setdefault("httpx._main", ModuleType("httpx._main"))
