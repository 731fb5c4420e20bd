"""Errors of the default functions, with the status that AWS's containers give them."""

from __future__ import annotations

import importlib

CHARSETS = ("utf-8", "utf8", "us-ascii", "iso-8859-1", "latin1", "windows-1252", "utf-16")
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


def text_of(body: bytes, content_type: str) -> str:
    """The text of a body in the header's charset, UTF-8 without one; no byte order mark.

    Raises the refusal with 415 for another charset than `CHARSETS`, 400 if the bytes are not text
    in it.
    """
    parameters = [each.partition("=") for each in content_type.split(";")[1:]]
    named = [value for name, _, value in parameters if name.strip().lower() == "charset"]
    charset = named[0].strip().strip("\"'").lower() if named else "utf-8"
    if charset not in CHARSETS:
        known = ", ".join(CHARSETS)
        raise refusal(UNSUPPORTED_TYPE, f"the charset is {charset[:80]!r}; it must be of {known}")
    try:
        text = body.decode(charset)
    except UnicodeDecodeError as error:
        raise refusal(BAD_REQUEST, f"the body is not text in {charset}: {error}") from None
    return text[1:] if text.startswith("\ufeff") else text


def first_accepted(accept: str, known: tuple[str, ...], status: int = NOT_ACCEPTABLE) -> str:
    """The first type of an Accept header that is known; raises the refusal with `status`."""
    for each in accept.split(","):
        kind = media_type(each)
        if kind in known:
            return kind
        if kind == "*/*":
            return known[0]
    raise refusal(status, f"Accept is {accept[:200]!r}; it must be one of {list(known)}")
