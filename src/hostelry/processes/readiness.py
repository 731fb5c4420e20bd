"""Readiness checks: a signed call to the gateway and one to the object store.

A check is called until it returns None. Until then it returns the reason as text.
"""

from collections.abc import Callable
from functools import partial

from hostelry.base.errors import RetryableError
from hostelry.home.home import Credentials
from hostelry.home.signed_call import CallAnswer, SignedApi, call

# A cold object store answers its first call slowly. A slower call is tried again.
ONE_CALL_S = 3.0
GET_CALLER_IDENTITY = b"Action=GetCallerIdentity&Version=2011-06-15"
FORM = {"content-type": "application/x-www-form-urlencoded"}


def why_not_ready(ask: Callable[[], CallAnswer], result: bytes) -> str | None:
    """None once the answer is a success with `result` in it, else why not.

    A starting server may answer anything.
    """
    try:
        answer = ask()
    except RetryableError as error:
        return str(error)
    return None if answer.status == 200 and result in answer.body else str(answer)


def gateway_check(url: str, credentials: Credentials) -> Callable[[], str | None]:
    """A check that the gateway, with control behind it, answers sts:GetCallerIdentity."""
    sts = SignedApi(service="sts", url=url, credentials=credentials, timeout_s=ONE_CALL_S)
    ask = partial(sts.call, "POST", body=GET_CALLER_IDENTITY, headers=FORM)
    return lambda: why_not_ready(ask, b"<GetCallerIdentityResult>")


def health_check(url: str) -> Callable[[], str | None]:
    """A check that a load balancer would send requests to the gateway, even without control."""
    return lambda: why_not_ready(lambda: call(url, "GET", "/health", timeout_s=ONE_CALL_S), b"")


def store_check(url: str, credentials: Credentials) -> Callable[[], str | None]:
    """A check that the object store answers s3:ListBuckets."""
    s3 = SignedApi(service="s3", url=url, credentials=credentials, timeout_s=ONE_CALL_S)
    return lambda: why_not_ready(s3.call, b"<ListAllMyBucketsResult")
