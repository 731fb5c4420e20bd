"""When a status that is not final fails."""

# Starting agents and queueing for room take part of a deadline beside the model's own timeouts.
INSTANCE_SLACK_S = 600.0
DELETE_S = 120.0


def start_deadline(now: float, download_timeout_s: float, startup_timeout_s: float) -> float:
    """The instant by which instances run, artifacts are there and model servers are proven."""
    return now + INSTANCE_SLACK_S + download_timeout_s + startup_timeout_s


def delete_deadline(now: float) -> float:
    """The instant by which everything of a deleted resource is stopped."""
    return now + DELETE_S
