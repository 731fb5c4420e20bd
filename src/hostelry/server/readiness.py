"""Readiness checks: a signed call to the gateway and one to the object store."""

import os
from collections.abc import Callable
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from botocore.session import Session

from hostelry.server.home import Credentials

# A cold object store answers its first call slowly; a slower call is tried again.
ONE_CALL_S = 3.0
MAX_REASON_BYTES = 4096
_opener = build_opener(ProxyHandler({}))
# The user's own profile and configuration must not change how the platform is called.
NO_CONFIGURATION = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}


def client(service: str, url: str, credentials: Credentials) -> Any:
    """A botocore client of one hostelry that tries each call once."""
    config = Config(
        connect_timeout=ONE_CALL_S,
        read_timeout=ONE_CALL_S,
        retries={"total_max_attempts": 1},
        proxies={},
        use_fips_endpoint=False,
        use_dualstack_endpoint=False,
    )
    return Session(session_vars=NO_CONFIGURATION).create_client(
        service,
        region_name=credentials.region,
        endpoint_url=url,
        aws_access_key_id=credentials.access_key_id,
        aws_secret_access_key=credentials.secret_access_key,
        config=config,
    )


def why_not_ready(call: Callable[[], Any]) -> str | None:
    """None once `call` succeeds, else why not; a starting server may answer no valid response."""
    try:
        call()
    except (ClientError, BotoCoreError, ResponseParserError) as error:
        return str(error)
    return None


def gateway_check(url: str, credentials: Credentials) -> Callable[[], str | None]:
    """A check that the gateway, with control behind it, answers sts:GetCallerIdentity."""
    sts = client("sts", url, credentials)
    return lambda: why_not_ready(sts.get_caller_identity)


def health_check(url: str) -> Callable[[], str | None]:
    """A check that the gateway would be sent requests by a load balancer; control may be away."""

    def check() -> str | None:
        try:
            with _opener.open(f"{url}/health", timeout=ONE_CALL_S):
                return None
        except HTTPError as error:
            with error:
                return error.read(MAX_REASON_BYTES).decode("utf-8", "replace")
        except (OSError, HTTPException) as error:
            return str(error)

    return check


def store_check(url: str, credentials: Credentials) -> Callable[[], str | None]:
    """A check that the object store answers s3:ListBuckets."""
    s3 = client("s3", url, credentials)
    return lambda: why_not_ready(s3.list_buckets)
