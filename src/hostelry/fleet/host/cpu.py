"""How much CPU time processes have used. Linux only: reads /proc."""

import os
from collections.abc import Iterable

from hostelry.fleet.host.memory import PROC
from hostelry.fleet.records import ProcessIdentity

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(processes: Iterable[ProcessIdentity]) -> float:
    """CPU seconds of the processes and of children that they have waited for; gone ones have none.

    Source: proc(5), stat, fields 14 to 17.
    """
    return sum(_ticks(process.pid) for process in processes) / TICKS_PER_S


def _ticks(pid: int) -> int:
    try:
        text = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return 0
    # The name in parentheses may itself hold spaces and parentheses.
    return sum(map(int, text[text.rfind(b")") + 2 :].split()[11:15]))
