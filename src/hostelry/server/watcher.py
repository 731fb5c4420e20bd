"""Starts a detached `up` again after it was killed; `up` in turn keeps this process running.

``python -I -S watcher.py KEPT LOCK LOG PROGRAM ARGUMENT...`` waits, without any work, until nobody
holds the file LOCK, which `up` does for its life. While there is a file KEPT, which `up` and
`hostelry down` remove when they stop the platform on purpose, it then starts PROGRAM with the lock
already held. It imports nothing of ours, so that it stays small and has nothing to break.
"""

import fcntl
import os
import signal
import sys
import time

FIRST_PAUSE_S = 0.1
MOST_PAUSE_S = 60.0
STEADY_S = 60.0
MARK = "HOSTELRY_SERVICE"  # of this process, and none of what it starts


def main() -> None:
    """Watch until the platform is stopped on purpose."""
    kept, lock, log, *program = sys.argv[1:]
    os.environ.pop(MARK, None)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # leaves no zombie of an `up` that ended
    pause_s = FIRST_PAUSE_S
    while True:
        began = time.monotonic()  # noqa: TID251 - imports nothing of ours
        os.close(held(lock))
        lived_s = time.monotonic() - began  # noqa: TID251 - likewise
        pause_s = next_pause_s(pause_s, lived_s)
        time.sleep(pause_s)
        descriptor = held(lock)
        if not os.path.exists(kept):
            return
        start([*program, str(descriptor)], descriptor, log)
        os.close(descriptor)


def next_pause_s(last_s: float, lived_s: float) -> float:
    """The pause after an `up` that lived so long: twice the last one, unless it was steady."""
    return FIRST_PAUSE_S if lived_s >= STEADY_S else min(MOST_PAUSE_S, last_s * 2)


def held(lock: str) -> int:
    """A descriptor that holds the lock; blocks for as long as somebody else does."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def start(argv: list[str], descriptor: int, log: str) -> None:
    """Start the program in a session of its own; it inherits `descriptor`, and with it the lock."""
    os.set_inheritable(descriptor, True)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    os.posix_spawn(
        argv[0],
        argv,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, log, append, 0o600),
        ],
        setsid=True,
        setsigdef=[signal.SIGCHLD],
    )


if __name__ == "__main__":
    main()
