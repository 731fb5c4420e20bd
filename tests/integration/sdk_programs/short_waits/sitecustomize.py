"""Waits of a program that has this folder in PYTHONPATH: the SDKs' own polls, 2 s instead of 30.

SHORT_WAITS_MOST_S is another limit. Of a wait of a second or less, a program's pause between two
requests, it waits the part SHORT_WAITS_PAUSES.
"""

import os
import time
from typing import SupportsIndex

MOST_S = float(os.environ.get("SHORT_WAITS_MOST_S", "2"))
PAUSES = float(os.environ.get("SHORT_WAITS_PAUSES", "1"))
LONGEST_PAUSE_S = 1.0
_sleep = time.sleep


def sleep(seconds: float | SupportsIndex) -> None:
    """`time.sleep`, of `MOST_S` at most, a pause of its part."""
    wait_s = float(seconds)
    _sleep(wait_s * PAUSES if wait_s <= LONGEST_PAUSE_S else min(wait_s, MOST_S))


time.sleep = sleep
