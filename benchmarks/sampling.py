"""A sampling profiler of every thread: functions that used the processor, and their callers."""

import sys
import threading
import time
from collections import Counter
from types import FrameType

EVERY_S = 0.004


class Sampler:
    """Processor time by function while the sampler runs. `with` starts and stops it.

    A sample weighs the time that its thread has run since the last one, so waits weigh nothing.
    """

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.on_stack: Counter[str] = Counter()
        self._used_ns: dict[int, int] = {}  # by thread
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def show(self, num: int = 30) -> None:
        """Print the functions that ran most, and the functions that were on the stack most."""
        total = max(1, self.running.total())
        for title, used in (("running", self.running), ("on the stack", self.on_stack)):
            print(f"-- {title}, of {total / 1e9:.2f} s")
            for name, used_ns in used.most_common(num):
                print(f"{used_ns / total:7.1%}  {name}")

    def _sample(self) -> None:
        while not self._stop.wait(EVERY_S):
            for thread, frame in sys._current_frames().items():
                if thread != threading.get_ident():
                    self._count(thread, frame)

    def _count(self, thread: int, top: FrameType) -> None:
        now_ns = time.clock_gettime_ns(time.pthread_getcpuclockid(thread))
        used_ns = now_ns - self._used_ns.get(thread, now_ns)
        self._used_ns[thread] = now_ns
        if not used_ns:
            return
        seen = set()
        frame: FrameType | None = top
        self.running[_name(top)] += used_ns
        while frame is not None:
            seen.add(_name(frame))
            frame = frame.f_back
        for name in seen:
            self.on_stack[name] += used_ns


def _name(frame: FrameType) -> str:
    code = frame.f_code
    return f"{'/'.join(code.co_filename.split('/')[-2:])}:{code.co_name}"
