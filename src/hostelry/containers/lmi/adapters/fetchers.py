"""Fetchers of remote adapters, by the scheme of their URI.

A client is imported when the first adapter needs it, so that a server without remote adapters
starts faster.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from hostelry.engine.lora.sources import Fetcher

SCHEMES = ("s3", "hf")


class LateFetcher:
    """A fetcher that creates the real fetcher by `make` at the first fetch."""

    def __init__(self, make: Callable[[], Fetcher]) -> None:
        self._make = make
        self._made: Fetcher | None = None
        self._making = threading.Lock()

    def fetch(self, uri: str, into: Path) -> None:
        """Copy the adapter's files into `into` (see Fetcher)."""
        with self._making:
            if self._made is None:
                self._made = self._make()
        self._made.fetch(uri, into)


def adapter_fetchers() -> Mapping[str, Fetcher]:
    """Fetchers with the credentials and endpoints of this process's environment."""
    return {"s3": LateFetcher(new_s3_fetcher), "hf": LateFetcher(new_hub_fetcher)}


def new_s3_fetcher() -> Fetcher:
    """A fetcher from S3 as boto3 finds it: AWS_*, AWS_ENDPOINT_URL_S3 and the shared files."""
    from hostelry.containers.lmi.adapters.s3_fetcher import S3Fetcher, new_client

    return S3Fetcher(new_client())


def new_hub_fetcher() -> Fetcher:
    """A fetcher from the Hugging Face hub, configured by HF_*."""
    from hostelry.engine.lora.hub import HubFetcher

    return HubFetcher()
