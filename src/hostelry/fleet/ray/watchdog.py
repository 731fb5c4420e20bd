"""Watchdog of an instance on a Ray node: ends its agent and copies once its actor is gone.

``python -I -S watchdog.py NODE_HOME PYTHON`` blocks on a pipe that only the actor's process holds,
so that even a killed actor leaves nothing. It imports nothing of Hostelry until then. Ray ends a
worker together with its children, so the watchdog forks once, in order not to be a child.
"""

import os
import signal
import sys


def main() -> None:
    """Wait for the end of standard input, then become the program that ends the instance."""
    home, python = sys.argv[1:]
    if os.fork():
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 1024):
        pass
    os.execv(python, [python, "-m", "hostelry.fleet.ray.end_instance", home])


if __name__ == "__main__":
    main()
