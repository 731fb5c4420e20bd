"""Errors of the default functions, with the status that AWS's containers give them."""

from __future__ import annotations

import importlib

BAD_REQUEST, NOT_ACCEPTABLE, UNSUPPORTED_TYPE = 400, 406, 415
# What a body that is no such content raises in decoders and frameworks.
BODY_ERRORS = (ValueError, TypeError, KeyError, IndexError, OverflowError)


def refusal(status: int, message: str) -> Exception:
    """An error that the transformer answers with this status."""
    errors = importlib.import_module("sagemaker_inference.errors")
    found = errors.GenericInferenceToolkitError(status, message)
    assert isinstance(found, Exception), "the toolkit's errors are exceptions"
    return found


def media_type(header: str | None) -> str:
    """The type of a Content-Type or Accept header, without parameters, in lower case."""
    return (header or "").split(";")[0].strip().lower()


def first_accepted(accept: str, known: tuple[str, ...]) -> str:
    """The first type of an Accept header that is known; raises the refusal with 406."""
    for each in accept.split(","):
        kind = media_type(each)
        if kind in known:
            return kind
        if kind == "*/*":
            return known[0]
    raise refusal(NOT_ACCEPTABLE, f"Accept is {accept[:200]!r}; it must be one of {list(known)}")
