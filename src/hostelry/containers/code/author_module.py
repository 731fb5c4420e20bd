"""The lines at which an author's code is, and its errors in words."""

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

MAX_ERROR_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class AuthorModule:
    """The loaded module of a folder, and its hooks by name."""

    folder: str
    hooks: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def place(self, frames: Iterator[tuple[FrameType, int]]) -> str | None:
        """The innermost of `frames` (outermost first) that is in the folder, as text."""
        found = None
        for frame, line in frames:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(self.folder):
                name = path.relative_to(self.folder)
                found = f"{name} line {line} in {frame.f_code.co_name}"
        return found

    def described(self, error: BaseException) -> str:
        """An error of the code: its kind, its message and its line."""
        kind = type(error).__name__
        text = "".join(traceback.format_exception_only(error)).strip()
        if not isinstance(error, SyntaxError):
            text = f"{kind}: {error}" if str(error) else kind
        text = text.replace(f"{self.folder}/", "")  # a path of the host
        place = self.place(traceback.walk_tb(error.__traceback__))
        return text[:MAX_ERROR_CHARACTERS] + (f" ({place})" if place else "")

    def main_thread_place(self) -> str | None:
        """The line that the main thread executes; None outside the author's code."""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        stack = [] if frame is None else list(traceback.walk_stack(frame))
        return self.place(iter(reversed(stack)))

    def coroutine_place(self, coroutine: Any) -> str | None:
        """The line at which a coroutine or generator waits."""
        frames = []
        while coroutine is not None:
            frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
            if frame is not None:
                frames.append((frame, frame.f_lineno))
            coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
        return self.place(iter(frames))
