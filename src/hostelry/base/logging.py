"""One log format for every process: time, level, process name, message; to standard error."""

import logging
import sys


def configure_logging(process_name: str, level: str = "INFO") -> None:
    """Send this process's log to standard error, each line naming `process_name`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter(f"%(asctime)s %(levelname)s {process_name} %(name)s: %(message)s")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for chatty in ("httpx", "httpcore", "botocore", "urllib3", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
