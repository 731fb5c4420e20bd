"""Shortens the waits of programs that have this folder in PYTHONPATH: SDK polls take 2 s, not 30.

SHORT_WAITS_MOST_S sets another limit. A wait of at most a second is a program's pause between two
requests. It is multiplied by SHORT_WAITS_PAUSES.
"""

import os
import time
from typing import SupportsIndex

MOST_S = float(os.environ.get("SHORT_WAITS_MOST_S", "2"))
PAUSES = float(os.environ.get("SHORT_WAITS_PAUSES", "1"))
LONGEST_PAUSE_S = 1.0
_sleep = time.sleep


def sleep(seconds: float | SupportsIndex) -> None:
    """`time.sleep`, at most `MOST_S`. Pauses are shortened in proportion."""
    wait_s = float(seconds)
    _sleep(wait_s * PAUSES if wait_s <= LONGEST_PAUSE_S else min(wait_s, MOST_S))


time.sleep = sleep
