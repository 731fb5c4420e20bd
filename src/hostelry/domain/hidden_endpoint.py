"""Hidden endpoints: a job's own endpoints, which clients do not see and cannot name.

a job's part                  name of the endpoint               owner
---------------------------   --------------------------------   -----------
a transform job               transform-job/JOB                  JOB
a recommendations job's step  recommendation-job/JOB/NUMBER      JOB/NUMBER
an AI one's step              ai-recommendation-job/JOB/NUMBER   JOB/NUMBER
"""

from enum import Enum


class HiddenKind(Enum):
    """The kind of job that has the endpoint. The value begins the names of such endpoints."""

    TRANSFORM = "transform-job/"
    RECOMMENDATION = "recommendation-job/"
    AI_RECOMMENDATION = "ai-recommendation-job/"


def find_hidden_kind(endpoint_name: str) -> HiddenKind | None:
    """The kind of a hidden endpoint. None for a client's endpoint."""
    return next((it for it in HiddenKind if endpoint_name.startswith(it.value)), None)


def is_hidden(endpoint_name: str) -> bool:
    """Whether an endpoint belongs to a job. No client can name an endpoint with a slash."""
    return "/" in endpoint_name and find_hidden_kind(endpoint_name) is not None


def get_owner(endpoint_name: str) -> str:
    """The owner of a hidden endpoint: a job, or a step of a job."""
    kind = find_hidden_kind(endpoint_name)
    return endpoint_name if kind is None else endpoint_name.removeprefix(kind.value)


def get_job_name(endpoint_name: str) -> str:
    """The name of the job that has a hidden endpoint."""
    return get_owner(endpoint_name).partition("/")[0]
