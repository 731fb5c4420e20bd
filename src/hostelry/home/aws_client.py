"""Clients of AWS's APIs at a running platform, for commands and drills."""

import os
import threading
from functools import cache
from typing import Any

from hostelry.home.home import Credentials, UpConfig

# The user's own profile and configuration must not change how the platform is called.
NO_CONFIGURATION = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}


_CREATING = threading.Lock()  # a session makes one client at a time


def aws_client(
    service: str,
    config: UpConfig,
    credentials: Credentials,
    *,
    tries: int = 1,
    read_timeout_s: float = 20.0,
) -> Any:
    """A botocore client of the platform that tries each call `tries` times."""
    # Commands that complete a name import this module, and need no client.
    from botocore.config import Config

    options = Config(
        connect_timeout=5.0,
        read_timeout=read_timeout_s,
        retries={"total_max_attempts": tries, "mode": "standard"},
        proxies={},
        s3={"addressing_style": "path"},
        max_pool_connections=64,
    )
    with _CREATING:
        return _session().create_client(
            service,
            region_name=credentials.region,
            endpoint_url=config.s3_url if service == "s3" else config.gateway_url,
            aws_access_key_id=credentials.access_key_id,
            aws_secret_access_key=credentials.secret_access_key,
            verify=config.https_ca,
            config=options,
        )


@cache
def _session() -> Any:
    """One session: each reads botocore's list of AWS's hosts, and the models of its services."""
    from botocore.session import Session

    return Session(session_vars=NO_CONFIGURATION)
