"""What an `up` that was killed leaves behind, and its end."""

import signal
import time

from hostelry.base.clock import monotonic_s
from hostelry.server.home import Home
from hostelry.server.objectstore import remove_sockets
from hostelry.server.process_table import signal_group
from hostelry.server.run_file import live_run_file, recorded_names, remove_run_file

GONE_WITHIN_S = 5.0


def end_services(home: Home) -> list[str]:
    """Kill the services of an `up` that is gone and forget their run files; the names killed.

    A run file whose pid is dead, or belongs to another process by now, is only removed.
    """
    killed = []
    for name in recorded_names(home):
        if name == "up":
            continue
        record = live_run_file(home, name)
        if record is not None:
            killed.append(name)
            deadline = monotonic_s() + GONE_WITHIN_S
            signal_group(record.pid, signal.SIGKILL)
            while record.alive and monotonic_s() < deadline:
                time.sleep(0.01)
        remove_run_file(home, name)
    remove_sockets(home)
    return killed
