"""The author's `model.py` as a module: its hooks, and the lines at which its code is."""

import importlib
import importlib.util
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from hostelry.base.errors import HostelryError

FILE = "model.py"
MODULE = "model"
NAMES = (
    "pair_list", "inputs", "outputs", "encode_decode", "async_utils", "input_parser", "request_io",
    "output_formatter", "session_manager",
)  # fmt: skip
PACKAGE = "hostelry.containers.lmi.code.djl_python"

HANDLE, INPUT_FORMATTER, OUTPUT_FORMATTER = "handle", "input_formatter", "output_formatter"
MARKS = (("is_input_formatter", INPUT_FORMATTER), ("is_output_formatter", OUTPUT_FORMATTER))
OTHER_MARKS = ("is_prediction_handler", "is_init_handler")
# What DJL Serving calls in place of its own adapters, where model.py is the whole model.
ADAPTER_FUNCTIONS = ("register_adapter", "update_adapter", "unregister_adapter")
SAGEMAKER_FUNCTIONS = ("model_fn", "input_fn", "predict_fn", "output_fn")
MAX_ERROR_CHARACTERS = 2000


class AuthorModuleError(HostelryError):
    """model.py cannot be used; the message has the reason for its author."""


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


def give_djl_python() -> None:
    """Make our package importable as `djl_python`, each of its modules once."""
    sys.modules["djl_python"] = importlib.import_module(PACKAGE)
    for name in NAMES:
        sys.modules[f"djl_python.{name}"] = importlib.import_module(f"{PACKAGE}.{name}")


def load_author_module(folder: str, packages: str | None) -> AuthorModule:
    """Run model.py of `folder` and find its hooks; `packages` is searched before Python's own.

    Raises AuthorModuleError.
    """
    sys.path[:0] = [folder, *([packages] if packages else [])]
    specification = importlib.util.spec_from_file_location(MODULE, Path(folder, FILE))
    if specification is None or specification.loader is None:
        raise AuthorModuleError(f"{FILE} is no Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[MODULE] = module
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise AuthorModuleError(AuthorModule(folder).described(error)) from error
    return AuthorModule(folder, hooks_of(module))


def check_adapter_functions(found: Mapping[str, Any]) -> None:
    """Raise AuthorModuleError for a hook by which DJL's handlers load adapters."""
    for name in ADAPTER_FUNCTIONS:
        if callable(found.get(name)):
            raise AuthorModuleError(
                f"{name} is never called here: the server loads adapters itself; leave it out, or "
                "put an adapter's formatters into its own model.py"
            )


def hooks_of(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """The hooks of a module by name. Raises AuthorModuleError for those never called here."""
    hooks: dict[str, Callable[..., Any]] = {}
    found = vars(module)
    if callable(found.get(HANDLE)):
        hooks[HANDLE] = found[HANDLE]
    check_adapter_functions(found)
    for name, value in sorted(found.items()):
        if not callable(value):
            continue
        for mark, hook in MARKS:
            if getattr(value, mark, False) is True:
                hooks.setdefault(hook, value)
        for mark in OTHER_MARKS:
            if getattr(value, mark, False) is True:
                raise AuthorModuleError(
                    f"{name} is marked @{mark.removeprefix('is_')}, which belongs to handlers of "
                    "scikit-learn and XGBoost models; write `handle` or a formatter"
                )
    functions = [name for name in SAGEMAKER_FUNCTIONS if callable(found.get(name))]
    if functions and not hooks:
        raise AuthorModuleError(
            f"{FILE} has {', '.join(functions)}, which belong to SageMaker's handlers of other "
            "frameworks; write `handle` or a formatter"
        )
    return hooks
