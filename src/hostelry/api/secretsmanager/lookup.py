"""Secrets, found by name or ARN.

Source of the texts: Secrets Manager's answers as moto and Terraform's provider expect them.
"""

from hostelry.api.context import CallContext
from hostelry.base.errors import ServiceError
from hostelry.domain.secret import StoredSecret
from hostelry.store.records import Versioned

SUFFIX_CHARACTERS = 7  # of an ARN behind the name: a hyphen and six others


def found_secret(context: CallContext, given: str) -> Versioned[StoredSecret]:
    """The secret of a name or an ARN, with or without its suffix; deleted ones are found, too."""
    records, scope = context.state.secrets, context.scope
    name = given
    if given.startswith("arn:"):
        arns = {it.value.arn: it.value.name for it in records.list(scope)}
        whole = {arn[:-SUFFIX_CHARACTERS]: name for arn, name in arns.items()} | arns
        name = whole.get(given, "")
    found = records.get(scope, name) if name else None
    if found is not None and is_due(found.value, context.now):
        erase(context, found)
        found = None
    if found is None:
        message = "Secrets Manager can't find the specified secret."
        raise ServiceError("ResourceNotFoundException", message)
    return found


def live_secret(context: CallContext, given: str) -> Versioned[StoredSecret]:
    """The secret; raises InvalidRequestException where it was deleted."""
    found = found_secret(context, given)
    if found.value.deletion_at is not None:
        raise ServiceError(
            "InvalidRequestException",
            "You can't perform this operation on the secret because it was marked for deletion.",
        )
    return found


def secrets_of(context: CallContext) -> list[StoredSecret]:
    """Every secret of the caller's scope; those whose recovery window is over are erased."""
    kept = []
    for found in context.state.secrets.list(context.scope):
        if is_due(found.value, context.now):
            erase(context, found)
        else:
            kept.append(found.value)
    return kept


def is_due(secret: StoredSecret, now: float) -> bool:
    """Whether the secret's recovery window is over."""
    return secret.deletion_at is not None and secret.deletion_at <= now


def erase(context: CallContext, found: Versioned[StoredSecret]) -> None:
    """Remove a secret with its values and its tags."""
    state, scope, secret = context.state, context.scope, found.value
    tags = state.tags.get(scope, secret.arn)
    if tags is not None:
        state.tags.delete(scope, secret.arn, expect=tags.version)
    state.secrets.delete(scope, secret.name, expect=found.version)
