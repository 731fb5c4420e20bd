"""A lower priority for a process that serves no client of models."""

import contextlib
import os
from pathlib import Path


def lower_priority(niceness: int) -> None:
    """Have what serves clients run first; it may not be allowed, and costs nothing then.

    Where the kernel groups processes by session, the group has a niceness of its own (sched(7));
    it is set where this process has the session to itself, as `up` starts it.
    """
    with contextlib.suppress(OSError):
        os.nice(niceness)
    if os.getsid(0) != os.getpid():
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(niceness), encoding="ascii")
