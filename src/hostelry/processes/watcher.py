"""Watcher that starts a detached `up` again after it was killed. `up` supervises it in turn.

``python -I -S watcher.py KEPT LOCK LOG PROGRAM ARGUMENT...`` blocks until it has the lock on the
file LOCK, which `up` holds for its life. If the file KEPT is there, which `up` and `hostelry down`
remove when they stop the platform on purpose, it then starts PROGRAM with the lock held. It imports
nothing of Hostelry, so that it stays small and no defect there breaks it.
"""

import fcntl
import os
import signal
import sys
import time

FIRST_PAUSE_S = 0.1
MOST_PAUSE_S = 60.0
STEADY_S = 60.0
MARK = "HOSTELRY_SERVICE"  # `up` must not carry the watcher's own
MARK_ROOM = 4096  # as in `home/home.py`


def main() -> None:
    """Watch until the platform was stopped on purpose."""
    kept, lock, log, *program = sys.argv[1:]
    os.environ[MARK] = "-" * MARK_ROOM
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # an `up` that ends leaves no zombie
    pause_s = FIRST_PAUSE_S
    while True:
        began = time.monotonic()  # noqa: TID251 - imports nothing of Hostelry
        os.close(take_lock(lock))
        lived_s = time.monotonic() - began  # noqa: TID251 - likewise
        pause_s = next_pause_s(pause_s, lived_s)
        time.sleep(pause_s)
        descriptor = take_lock(lock)
        if not os.path.exists(kept):
            return
        start([*program, str(descriptor)], descriptor, log)
        os.close(descriptor)


def next_pause_s(last_s: float, lived_s: float) -> float:
    """The pause after an `up` that ran for `lived_s`: twice the last pause, or the first again."""
    return FIRST_PAUSE_S if lived_s >= STEADY_S else min(MOST_PAUSE_S, last_s * 2)


def take_lock(lock: str) -> int:
    """Take the lock, and return its descriptor. Blocks while another process holds it."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def start(argv: list[str], descriptor: int, log: str) -> None:
    """Start the program in a new session. It inherits `descriptor`, and so the lock."""
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
