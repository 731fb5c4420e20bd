"""Filters of EC2's Describe operations."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from hostelry.base.errors import ServiceError


def passes(filters: Sequence[Mapping[str, Any]], values: Mapping[str, str]) -> bool:
    """Whether `values` (by filter name) match one value of every filter; `*` and `?` are wild.

    Raises InvalidParameterValue for a filter that `values` does not have.
    """
    for given in filters:
        name = given.get("Name", "")
        if name not in values:
            raise ServiceError(
                "InvalidParameterValue",
                f"The filter '{name}' is not supported by this version of Hostelry; there are "
                + ", ".join(sorted(values)),
            )
        # A bracket is no wildcard of EC2's.
        patterns = [str(it).replace("[", "[[]") for it in given.get("Values") or ()]
        if not any(fnmatchcase(values[name], pattern) for pattern in patterns):
            return False
    return True


def refuse_dry_run(params: Mapping[str, Any]) -> None:
    """Raise DryRunOperation where the caller asks only whether the call would be allowed."""
    if params.get("DryRun"):
        raise ServiceError(
            "DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412
        )
