"""The data log: what became of requests and records outside of the container that they went to.

Source: SageMaker developer guide, "Log groups and streams that SageMaker AI sends to CloudWatch
Logs", where the names of such streams end in ``/data-log``.
"""

from dataclasses import dataclass

from hostelry.domain.log_source import LogSource, endpoint_group
from hostelry.domain.scope import Scope
from hostelry.domain.transform_job import is_hidden, job_name_of

SUFFIX = "/data-log"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLine:
    """A line; `at` in seconds since the epoch.

    `copy_id` is None where no copy had a part in it, `variant_name` empty where none was chosen.
    """

    scope: Scope
    endpoint_name: str
    variant_name: str
    copy_id: str | None = None
    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLogReport:
    """Lines of a process, `started_at` then; the same `sequence` again is the same report."""

    started_at: float
    sequence: int
    lines: tuple[DataLine, ...]


def stream_of(line: DataLine, source: LogSource | None) -> tuple[str, str]:
    """The group and the stream of a line; `source` is the line's copy, where that is known."""
    if source is not None:
        return source.group, source.stream + SUFFIX
    name = line.endpoint_name
    first = job_name_of(name) if is_hidden(name) else line.variant_name
    return endpoint_group(name), (first + SUFFIX).removeprefix("/")
