"""STS's operations by name."""

from collections.abc import Mapping

from hostelry.api.context import Operation
from hostelry.api.sts import caller_identity, temporary_keys

OPERATIONS: Mapping[str, Operation] = {
    "GetCallerIdentity": caller_identity.get_caller_identity,
    "AssumeRole": temporary_keys.assume_role,
    "GetSessionToken": temporary_keys.get_session_token,
}
