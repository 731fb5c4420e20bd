"""An event that the signals which end a process set."""

import asyncio
import signal


def stop_event() -> asyncio.Event:
    """Set by SIGTERM or SIGINT, which end the process no more; for a running loop."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
