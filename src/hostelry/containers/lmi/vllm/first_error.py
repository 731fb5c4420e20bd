"""Failures of vLLM: finds the first error of its processes, which later errors hide."""

import json
import logging
import re
from pathlib import Path

LOGGING_FILE = "logging.json"
ERROR_FILE = "first-error"
# Source: vLLM 0.32, its registry of models, and transformers' AutoConfig.
UNKNOWN_MODEL = re.compile(
    r"are not supported for now|does not recognize this architecture|No model architectures"
)
MAX_FAILURE_CHARACTERS = 300  # a FailureReason has room for it


class FirstError(logging.Handler):
    """Writes the first exception that any of vLLM's processes logs to the file `path`."""

    def __init__(self, path: str) -> None:
        super().__init__(logging.ERROR)
        self._path = Path(path)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's exception, unless another exception was written before."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return
        try:
            with self._path.open("x", encoding="utf-8") as file:
                file.write(f"{type(error).__name__}: {error}")
        except FileExistsError:
            return
        except OSError:
            self.handleError(record)


def write_logging(place: Path) -> None:
    """Write vLLM's logging settings to `place`."""
    handlers = {
        "standard": {
            "class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr",
        },
        "first": {"()": f"{__name__}.{FirstError.__name__}", "path": str(place / ERROR_FILE)},
    }  # fmt: skip
    settings = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(levelname)s %(asctime)s %(name)s: %(message)s"}},
        "handlers": handlers,
        "loggers": {
            "vllm": {"handlers": list(handlers), "level": "WARNING", "propagate": False},
        },
    }
    (place / LOGGING_FILE).write_text(json.dumps(settings))


def first_error(place: Path) -> str | None:
    """The first error. None if no error was logged."""
    try:
        return (place / ERROR_FILE).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def failure_text(error: Exception, first: str | None = None) -> str:
    """VLLM's error on one line of bounded length, without the frame that pydantic gives it.

    `first` is the first error of its processes, which takes the error's place.
    """
    if first is not None:
        return f"vLLM: {' '.join(first.split())[:MAX_FAILURE_CHARACTERS]}"
    text = " ".join(str(error).split())
    text = text.partition("Value error, ")[2] or text
    text = text.partition(" [type=")[0].partition(" For further information visit")[0]
    return f"vLLM: {type(error).__name__}: {text[:MAX_FAILURE_CHARACTERS]}"


def names_unknown_model(text: str) -> bool:
    """True if vLLM's error says that it has no code for this model."""
    return UNKNOWN_MODEL.search(text) is not None
