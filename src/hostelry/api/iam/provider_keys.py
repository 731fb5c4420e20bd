"""The public keys of OpenID Connect providers: fetched when a token comes, kept for minutes.

    issuer + /.well-known/openid-configuration   has the provider's issuer and jwks_uri
    jwks_uri                                     has its keys

A key id that is not among the kept keys makes them be fetched again, once a minute at most, so that
tokens with invented key ids do not become requests to the provider.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import ServiceError
from hostelry.base.json import decode
from hostelry.home.ports import is_loopback

LOG = logging.getLogger(__name__)
CONFIGURATION = "/.well-known/openid-configuration"
KEPT_S = 300.0
STALE_S = 3600.0  # keys serve for so long while the provider does not answer
AGAIN_S = 60.0  # between two fetches for unknown key ids
FAILED_S = 10.0  # between two attempts to reach a provider
MAX_ISSUERS = 1000
MAX_KEYS = 200
Jwk = Mapping[str, Any]


class ProviderConfiguration(msgspec.Struct):
    """The members that count of a provider's configuration."""

    issuer: str
    jwks_uri: str


class KeySetDocument(msgspec.Struct):
    """A provider's keys, as a JWK set."""

    keys: list[dict[str, Any]]


class KeptKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a provider. `tried_at_s` is the time of the last attempt to fetch them."""

    keys: tuple[Jwk, ...] = ()
    fetched_at_s: float | None = None
    tried_at_s: float
    failure: str = ""


class ProviderKeys:
    """Finds keys. May be called from several threads.

    Args:
        fetch: gets the body of a URL. Raises OSError with the reason if it cannot.
        get_time_s: the monotonic clock.
    """

    def __init__(
        self, fetch: Callable[[str], bytes], get_time_s: Callable[[], float] = monotonic_s
    ) -> None:
        self._fetch = fetch
        self._get_time_s = get_time_s
        self._kept: dict[str, KeptKeys] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    @property
    def num_kept(self) -> int:
        """The number of providers whose answers are kept."""
        return len(self._kept)

    def find(self, issuer: str, key_id: str) -> Sequence[Jwk]:
        """The keys of a provider. Raises ServiceError IDPCommunicationError without an answer."""
        with self._lock:
            if len(self._locks) >= MAX_ISSUERS:
                self._locks.clear()
                self._kept.clear()
            lock = self._locks.setdefault(issuer, threading.Lock())
        with lock:
            kept = self._kept.get(issuer)
            now_s = self._get_time_s()
            if must_fetch(kept, key_id, now_s):
                kept = self._kept[issuer] = self._fetch_keys(issuer, kept, now_s)
        assert kept is not None
        if kept.fetched_at_s is None or now_s - kept.fetched_at_s > STALE_S:
            raise ServiceError(
                "IDPCommunicationError",
                f"The identity provider {issuer} cannot be asked for its keys: {kept.failure}",
            )
        return kept.keys

    def _fetch_keys(self, issuer: str, kept: KeptKeys | None, now_s: float) -> KeptKeys:
        try:
            keys = self._ask(issuer)
        except OSError as error:
            # Not in the answer: it would show callers which addresses of the network are in use.
            LOG.warning("the identity provider %s cannot be asked: %s", issuer, error)
            failure = "the log of control says why"
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            failure = str(error)
        else:
            return KeptKeys(keys=keys, fetched_at_s=now_s, tried_at_s=now_s)
        kept = kept or KeptKeys(tried_at_s=now_s)
        return msgspec.structs.replace(kept, tried_at_s=now_s, failure=failure)

    def _ask(self, issuer: str) -> tuple[Jwk, ...]:
        """The provider's present keys. Raises OSError without answers, ValueError for invalid."""
        found = decode(self._fetch(issuer + CONFIGURATION), ProviderConfiguration)
        if found.issuer != issuer:
            raise ValueError(f"its configuration has the issuer {found.issuer:.255}")
        check_fetched_address(found.jwks_uri)
        keys = decode(self._fetch(found.jwks_uri), KeySetDocument).keys
        if len(keys) > MAX_KEYS:
            raise ValueError(f"it has {len(keys)} keys, more than {MAX_KEYS}")
        return tuple(keys)


def must_fetch(kept: KeptKeys | None, key_id: str, now_s: float) -> bool:
    """True if keys have to be fetched for a token with this key id."""
    if kept is None:
        return True
    if kept.fetched_at_s is None or now_s - kept.fetched_at_s > KEPT_S:
        return now_s - kept.tried_at_s > FAILED_S
    is_known = any(it.get("kid") == key_id for it in kept.keys)
    return not is_known and now_s - kept.tried_at_s > AGAIN_S


def check_fetched_address(address: str) -> None:
    """Raise ValueError unless an address is https, or http on this machine's loopback address."""
    try:
        url = urlsplit(address)
        is_allowed = url.scheme == "https" or (
            url.scheme == "http" and is_loopback(url.hostname or "")
        )
    except ValueError:
        is_allowed = False
    if not is_allowed:
        raise ValueError(f"its address of keys must begin with https://: {address:.255}")
