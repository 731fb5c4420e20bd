"""Keys of OpenID Connect providers: when they are fetched, and which answers are refused."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.api.iam.provider_keys import (
    AGAIN_S,
    CONFIGURATION,
    FAILED_S,
    KEPT_S,
    STALE_S,
    ProviderKeys,
)
from hostelry.base.errors import ServiceError

ISSUER = "https://id.example"
JWKS = "https://keys.example/jwks"


class Provider:
    """A provider's answers, how often it was asked, and the time."""

    def __init__(self) -> None:
        self.keys: list[Any] = [{"kid": "one"}]
        self.configuration: Any = {"issuer": ISSUER, "jwks_uri": JWKS, "more": 1}
        self.is_away = False
        self.asked: list[str] = []
        self.now_s = 1000.0

    def fetch(self, url: str) -> bytes:
        self.asked.append(url)
        if self.is_away:
            raise OSError("it does not answer")
        if url == JWKS:
            return json.dumps({"keys": self.keys}).encode()
        assert url == ISSUER + CONFIGURATION
        return json.dumps(self.configuration).encode()

    @property
    def num_fetches(self) -> int:
        return sum(it != JWKS for it in self.asked)


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def kept(provider: Provider) -> ProviderKeys:
    return ProviderKeys(provider.fetch, lambda: provider.now_s)


def find(kept: ProviderKeys, key_id: str = "one") -> list[Mapping[str, Any]]:
    return list(kept.find(ISSUER, key_id))


def test_keys_are_kept_for_minutes(provider: Provider, kept: ProviderKeys) -> None:
    assert find(kept) == [{"kid": "one"}]
    provider.now_s += KEPT_S
    find(kept)
    assert provider.num_fetches == 1
    provider.now_s += 1
    find(kept)
    assert provider.num_fetches == 2


def test_an_unknown_key_is_looked_for_once_a_minute(provider: Provider, kept: ProviderKeys) -> None:
    find(kept)
    provider.keys.append({"kid": "two"})
    assert find(kept, "two") == [{"kid": "one"}], "the keys were fetched a moment ago"
    provider.now_s += AGAIN_S + 1
    assert len(find(kept, "two")) == 2
    for number in range(5):
        find(kept, f"invented-{number}")
    assert provider.num_fetches == 2


def test_known_keys_serve_while_the_provider_is_away(
    provider: Provider, kept: ProviderKeys
) -> None:
    find(kept)
    provider.is_away = True
    provider.now_s += STALE_S - 1
    assert find(kept) == [{"kid": "one"}]
    provider.now_s += 2
    with pytest.raises(
        ServiceError, match=r"https://id.example .* log of control says why"
    ) as caught:
        find(kept)
    assert caught.value.code == "IDPCommunicationError"


def test_a_provider_that_is_away_is_asked_again_after_a_while(
    provider: Provider, kept: ProviderKeys
) -> None:
    provider.is_away = True
    for _ in range(3):
        with pytest.raises(ServiceError, match="log of control says why"):
            find(kept)
    assert provider.num_fetches == 1
    provider.is_away = False
    provider.now_s += FAILED_S + 1
    assert find(kept) == [{"kid": "one"}]


@cases(
    "configuration, keys, text",
    case("another issuer", {"issuer": "https://b", "jwks_uri": JWKS}, [], "has the issuer https"),
    case("no configuration", [], [], "Expected `object`"),
    case("no address", {"issuer": ISSUER}, [], "missing required field `jwks_uri`"),
    case("http", {"issuer": ISSUER, "jwks_uri": "http://a/k"}, [], "must begin with https://"),
    case("a file", {"issuer": ISSUER, "jwks_uri": "file:///etc"}, [], "must begin with https://"),
    case("no URL", {"issuer": ISSUER, "jwks_uri": "http://["}, [], "must begin with https://"),
    case("no keys", None, [1], "Expected `object`"),
    case("many keys", None, [{}] * 201, "201 keys, more than 200"),
)
def test_answers_that_are_refused(
    provider: Provider, kept: ProviderKeys, configuration: Any, keys: list[Any], text: str
) -> None:
    provider.configuration = provider.configuration if configuration is None else configuration
    provider.keys = keys
    with pytest.raises(ServiceError) as caught:
        find(kept)
    assert text in caught.value.message


def test_so_many_providers_are_not_kept(provider: Provider, kept: ProviderKeys) -> None:
    provider.is_away = True
    for number in range(1100):
        with pytest.raises(ServiceError):
            kept.find(f"https://id{number}.example", "one")
    assert kept.num_kept <= 1000
