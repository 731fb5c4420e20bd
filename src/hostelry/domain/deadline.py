"""When a status that is not final fails."""

# Starting agents and queueing for room take part of a deadline beside the model's own timeouts;
# VariantInstanceProvisionTimeoutInSeconds says how long, where it is given.
PROVISION_S = 600.0
DELETE_S = 120.0


def start_deadline(
    now: float,
    download_timeout_s: float,
    startup_timeout_s: float,
    provision_timeout_s: float = PROVISION_S,
) -> float:
    """The instant by which instances run, artifacts are there and model servers are proven."""
    return now + provision_timeout_s + download_timeout_s + startup_timeout_s


def delete_deadline(now: float) -> float:
    """The instant by which everything of a deleted resource is stopped."""
    return now + DELETE_S
