"""A lower priority for a process that serves no client of models."""

import contextlib
import os
from pathlib import Path


def lower_priority(niceness: int) -> None:
    """Lower this process's priority below the processes that serve clients, if that is allowed.

    If the kernel groups processes by session, the group also has a niceness (sched(7)). It is set
    if this process has the session to itself, as `up` starts it.
    """
    with contextlib.suppress(OSError):
        os.nice(niceness)
    if os.getsid(0) != os.getpid():
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(niceness), encoding="ascii")
