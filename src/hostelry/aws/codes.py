"""Error codes of query services by the codes of JSON services."""

from collections.abc import Mapping

QUERY_SIGNING_NAMES = frozenset({"sts", "iam", "sns", "ec2"})
"""Credential-scope services that speak a query protocol only."""

QUERY_CODES: Mapping[str, str] = {
    "AccessDeniedException": "AccessDenied",
    "ExpiredTokenException": "ExpiredToken",
    **{
        name: f"AWS.SimpleQueueService.{name}"
        for name in (
            "BatchEntryIdsNotDistinct",
            "BatchRequestTooLong",
            "EmptyBatchRequest",
            "InvalidBatchEntryId",
            "MessageNotInflight",
            "PurgeQueueInProgress",
            "TooManyEntriesInBatchRequest",
        )
    },
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
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
    """The code of a query service for `code`."""
    return QUERY_CODES.get(code, code)
