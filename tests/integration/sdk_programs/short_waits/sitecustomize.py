"""Waits of a program that has this folder in PYTHONPATH: the SDKs' own polls, 2 s instead of 30."""

import time
from typing import SupportsIndex

MOST_S = 2.0
_sleep = time.sleep


def sleep(seconds: float | SupportsIndex) -> None:
    """`time.sleep`, of `MOST_S` at most."""
    _sleep(min(float(seconds), MOST_S))


time.sleep = sleep
