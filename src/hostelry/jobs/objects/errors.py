"""Errors of the object store, as jobs act on them.

ObjectError                     the same request will fail again
├── ObjectMissingError          no such object
├── NoSuchBucketError           no such bucket
├── ObjectDeniedError           the platform's keys may not
├── ObjectChangedError          another version of the object is there now
└── ObjectStoreDownError        the store failed, or does not answer: it may succeed later

answer of the store                          error
------------------------------------------   ------------------------------------------
NoSuchBucket                                 NoSuchBucketError
NoSuchKey, any other 404                     ObjectMissingError
412                                          ObjectChangedError
403                                          ObjectDeniedError
408, 429, 5xx, SlowDown, RequestTimeout      ObjectStoreDownError
any other                                    ObjectError
"""

import re

from hostelry.base.errors import HostelryError

CODE = re.compile(rb"<Code>([^<]{1,100})</Code>")
MESSAGE = re.compile(rb"<Message>([^<]{1,500})</Message>")
TRANSIENT = frozenset({"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable"})


class ObjectError(HostelryError):
    """The object cannot be read or written."""


class ObjectMissingError(ObjectError):
    """The bucket has no such object."""


class NoSuchBucketError(ObjectError):
    """There is no such bucket."""


class ObjectDeniedError(ObjectError):
    """The object store refuses the platform's keys."""


class ObjectChangedError(ObjectError):
    """The object is no longer the version that was being read."""


class ObjectStoreDownError(ObjectError):
    """The object store failed or could not be reached; the same request may succeed later."""


def refusal_of(status: int, body: bytes, what: str) -> ObjectError:
    """The error for an answer that is not 2xx; `what` is the call and its object's URI."""
    code, reason = _found(CODE, body), _found(MESSAGE, body)
    text = f"{what}: the object store answered {status} {code} {reason}".rstrip()
    if code == "NoSuchBucket":
        return NoSuchBucketError(text)
    if status == 404:
        return ObjectMissingError(text)
    if status == 412:
        return ObjectChangedError(text)
    if status in (408, 429) or status >= 500 or code in TRANSIENT:
        return ObjectStoreDownError(text)
    return ObjectDeniedError(text) if status == 403 else ObjectError(text)


def _found(pattern: "re.Pattern[bytes]", body: bytes) -> str:
    found = pattern.search(body)
    return "" if found is None else found.group(1).decode("utf-8", "replace")
