"""Deadlines of statuses that are not final."""

# Added to the model's own timeouts, for starting agents and waiting for free resources;
# VariantInstanceProvisionTimeoutInSeconds replaces it.
PROVISION_S = 600.0
DELETE_S = 120.0
TRANSFORM_S = 28 * 86_400.0  # the longest that a transform job may run
STOP_S = 60.0  # for the requests of a stopped transform job to end
EXPERIMENT_SLACK_S = 120.0  # beyond its endpoint's own deadline, which has the better reason
EXPERIMENT_CHANGE_S = 600.0  # for an experiment's endpoint to take another weight, or an update
RUNNER_S = 600.0  # for the process that runs transform jobs to ask for them


def start_deadline(
    now: float,
    download_timeout_s: float,
    startup_timeout_s: float,
    provision_timeout_s: float = PROVISION_S,
) -> float:
    """The deadline for instances to run, downloads to end and model servers to be ready."""
    return now + provision_timeout_s + download_timeout_s + startup_timeout_s


def delete_deadline(now: float) -> float:
    """The deadline for everything of a deleted resource to stop."""
    return now + DELETE_S
