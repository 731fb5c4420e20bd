import pytest
from tests.cases import case, cases

from hostelry.base.address import Address, on_host


@cases(
    "text, expected",
    case("plain, on this host", "http://127.0.0.1:80", Address("http", "127.0.0.1", 80)),
    case(
        "a name behind a node proxy",
        "https://i-0a1@10.0.0.2:7443",
        Address("https", "10.0.0.2", 7443, "i-0a1"),
    ),
    case("IPv6", "https://c-1@[fd00::2]:7443", Address("https", "fd00::2", 7443, "c-1")),
    case("the web's TLS", "https://s3.aws.com", Address("https", "s3.aws.com", 443)),
)
def test_an_address_is_read(text: str, expected: Address) -> None:
    assert Address.parse(text) == expected
    assert Address.parse(str(expected)) == expected


@cases(
    "text",
    case("nothing", ""),
    case("no scheme", "127.0.0.1:80"),
    case("another scheme", "ftp://h:1"),
    case("a name without TLS", "http://i-1@h:80"),
    case("a name without a port", "https://i-1@h"),
    case("a password", "https://i-1:secret@h:1"),
    case("a name of two labels", "https://i.1@h:1"),
    case("a name too long for a server name", f"https://{'i' * 64}@h:1"),
    case("a port that is none", "https://h:99999"),
    case("an empty name", "https://@h:1"),
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        Address.parse(text)


def test_others_on_a_host_are_reached_through_its_proxy() -> None:
    assert on_host("https://i-1@10.0.0.2:7443", "c-2") == "https://c-2@10.0.0.2:7443"
    assert on_host("http://127.0.0.1:80", "c-2") == "http://127.0.0.1:80"
