"""IAM's errors, in AWS's words.

Source: IAM API reference, and the answers that moto and Terraform's provider match on.
"""

from hostelry.base.errors import ServiceError
from hostelry.permissions.document import (
    DocumentKind,
    MalformedDocument,
    PolicyStatement,
    statements_of,
)


def no_such_entity(message: str) -> ServiceError:
    """The error for a name that nothing has."""
    return ServiceError("NoSuchEntity", message, 404)


def already_exists(message: str) -> ServiceError:
    """The error for a second create of a name."""
    return ServiceError("EntityAlreadyExists", message, 409)


def delete_conflict(message: str) -> ServiceError:
    """The error for the delete of what is in use."""
    return ServiceError("DeleteConflict", message, 409)


def limit_exceeded(message: str) -> ServiceError:
    """The error for more than an account, or an entity, may have."""
    return ServiceError("LimitExceeded", message, 409)


def invalid_input(message: str) -> ServiceError:
    """The error for a value that IAM does not take."""
    return ServiceError("InvalidInput", message, 400)


def validation(message: str) -> ServiceError:
    """The error for a value that no call may have."""
    return ServiceError("ValidationError", message, 400)


def unmodifiable(name: str) -> ServiceError:
    """The error for a change of a role that a service owns."""
    return ServiceError(
        "UnmodifiableEntity",
        f"Cannot perform the operation on the protected role '{name}' - this role is only"
        " modifiable by AWS",
        400,
    )


def checked_document(text: str, kind: DocumentKind) -> tuple[PolicyStatement, ...]:
    """The statements of a document; raises MalformedPolicyDocument."""
    try:
        return statements_of(text, kind)
    except MalformedDocument as error:
        raise ServiceError("MalformedPolicyDocument", str(error), 400) from None


def document_size(text: str) -> int:
    """The characters of a document that count: all but white space."""
    return len("".join(text.split()))
