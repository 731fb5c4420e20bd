"""A sampling profiler of every thread: which functions ran, and which were on the stack."""

import sys
import threading
from collections import Counter
from types import FrameType

EVERY_S = 0.004
# Where a thread waits; a sample there is no use of the processor.
WAITS = {"wait", "select", "_worker", "acquire", "_alone", "_bootstrap", "sleep", "_sample"}


class Sampler:
    """Counts of functions while it runs; `with` starts and stops it."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.on_stack: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def show(self, num: int = 30) -> None:
        """Print the functions that ran most, and those that were on the stack most."""
        total = max(1, self.running.total())
        for title, counts in (("running", self.running), ("on the stack", self.on_stack)):
            print(f"-- {title}, of {total} samples")
            for name, count in counts.most_common(num):
                print(f"{count / total:7.1%}  {name}")

    def _sample(self) -> None:
        while not self._stop.wait(EVERY_S):
            for frame in sys._current_frames().values():
                self._count(frame)

    def _count(self, top: FrameType) -> None:
        if top.f_code.co_name in WAITS:
            return
        seen = set()
        frame: FrameType | None = top
        self.running[_name(top)] += 1
        while frame is not None:
            seen.add(_name(frame))
            frame = frame.f_back
        self.on_stack.update(seen)


def _name(frame: FrameType) -> str:
    code = frame.f_code
    return f"{'/'.join(code.co_filename.split('/')[-2:])}:{code.co_name}"
