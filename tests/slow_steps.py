"""Runs control or an agent on asyncio's own event loop, and records each step that takes long.

    SLOW_STEPS=FILE python -m tests.slow_steps --home HOME

FILE gets a line for each step that takes more than LONG_S of processor time. Time in which the
machine runs other processes does not count.
"""

import asyncio
import os
import runpy
import sys
import threading
import time
from pathlib import Path

import uvloop

from hostelry.processes import fleets

LONG_S = 0.05


def note_slow_steps(path: Path) -> None:
    """Have the event loop of this thread note its slow steps from now on."""
    run, thread_id = asyncio.Handle._run, threading.get_ident()

    def timed(handle: asyncio.Handle) -> None:
        if threading.get_ident() != thread_id:
            run(handle)
            return
        callback = handle._callback  # type: ignore[attr-defined]
        began_s = time.thread_time()
        run(handle)
        took_s = time.thread_time() - began_s
        if took_s > LONG_S:
            with path.open("a") as file:
                file.write(f"{took_s:.3f} s: {getattr(callback, '__self__', callback)!r}\n")

    asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]


def main() -> None:
    """Run the agent of an instance, or control, with the arguments."""
    note_slow_steps(Path(os.environ["SLOW_STEPS"]))
    uvloop.run = asyncio.run  # type: ignore[assignment]
    fleets.AGENT_MODULE = "tests.slow_steps"
    module = "services.agent" if "--instance-id" in sys.argv else "control.main"
    runpy.run_module(f"hostelry.{module}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
