"""One log format for every process, text or JSON lines, to standard error.

A line is about the request that its task works on, where `about_request` said which: tasks and
threads that it starts work on the same. Source: Python, contextvars.
"""

import logging
import sys
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from typing import Any

import msgspec

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)
_REQUEST: ContextVar[str] = ContextVar("request", default="")


def about_request(request_id: str) -> Token[str]:
    """Note that this task works on the request, until `no_request` gets the token."""
    return _REQUEST.set(request_id)


def no_request(token: Token[str]) -> None:
    """End what `about_request` began."""
    _REQUEST.reset(token)


def configure_logging(process_name: str, level: str = "INFO", log_format: str = TEXT) -> None:
    """Send this process's log to standard error, each line naming `process_name`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(build_formatter(process_name, log_format))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for chatty in ("httpx", "httpcore", "botocore", "urllib3", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    logging.getLogger("asyncio").addFilter(is_more_than_a_lost_connection)


def is_more_than_a_lost_connection(record: logging.LogRecord) -> bool:
    """False if a peer closed a TLS connection while uvloop wrote to it, which is not our defect.

    The user of the connection gets an error and reports it. Source: uvloop, `SSLProtocol._do_read`
    writes without checking that its transport is open.
    """
    error = record.exc_info[1] if record.exc_info else None
    is_lost = isinstance(error, RuntimeError) and "the handler is closed" in str(error)
    return not (is_lost and str(record.msg).startswith("Fatal error on SSL protocol"))


def build_formatter(process_name: str, log_format: str) -> logging.Formatter:
    """Build the formatter of a process's log, in one of `FORMATS`."""
    return JsonLines(process_name) if log_format == JSON else TextLines(process_name)


class TextLines(logging.Formatter):
    """Time, level, process, logger, message, and the request's id unless the message has it."""

    def __init__(self, process_name: str) -> None:
        super().__init__(f"%(asctime)s %(levelname)s {process_name} %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The first line of a record."""
        line, request_id = super().formatMessage(record), _REQUEST.get()
        return f"{line} [request {request_id}]" if request_id and request_id not in line else line


class JsonLines(logging.Formatter):
    """One JSON object per record, with `request_id` and `exception` if there are any."""

    def __init__(self, process_name: str) -> None:
        super().__init__()
        self._process = process_name

    def format(self, record: logging.LogRecord) -> str:
        """The object, on one line."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := _REQUEST.get():
            line["request_id"] = request_id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()
