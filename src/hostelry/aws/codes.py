"""One error under two names: JSON services and query services call the same fault differently."""

from collections.abc import Mapping

QUERY_SIGNING_NAMES = frozenset({"sts", "iam"})
"""Credential-scope services that speak the query protocol only."""

QUERY_CODES: Mapping[str, str] = {
    "AccessDeniedException": "AccessDenied",
    "IncompleteSignatureException": "IncompleteSignature",
    "InvalidSignatureException": "SignatureDoesNotMatch",
    "MissingAuthenticationTokenException": "MissingAuthenticationToken",
    "SerializationException": "MalformedInput",
    "ThrottlingException": "Throttling",
    "UnknownOperationException": "InvalidAction",
    "UnrecognizedClientException": "InvalidClientTokenId",
    "ValidationException": "ValidationError",
}
"""JSON service's code -> query service's code. Source: AWS API guides, Common Errors pages."""


def query_code(code: str) -> str:
    """What a query service calls `code`."""
    return QUERY_CODES.get(code, code)
