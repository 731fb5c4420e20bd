import pytest

from hostelry.base.address import Address, on_host


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "http://127.0.0.1:80", Address("http", "127.0.0.1", 80), id="plain, on this host"
        ),
        pytest.param(
            "https://i-0a1@10.0.0.2:7443",
            Address("https", "10.0.0.2", 7443, "i-0a1"),
            id="a name behind a node proxy",
        ),
        pytest.param(
            "https://c-1@[fd00::2]:7443", Address("https", "fd00::2", 7443, "c-1"), id="IPv6"
        ),
        pytest.param("https://s3.aws.com", Address("https", "s3.aws.com", 443), id="the web's TLS"),
    ],
)
def test_an_address_is_read(text: str, expected: Address) -> None:
    assert Address.parse(text) == expected
    assert Address.parse(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("127.0.0.1:80", id="no scheme"),
        pytest.param("ftp://h:1", id="another scheme"),
        pytest.param("http://i-1@h:80", id="a name without TLS"),
        pytest.param("https://i-1@h", id="a name without a port"),
        pytest.param("https://i-1:secret@h:1", id="a password"),
        pytest.param("https://i.1@h:1", id="a name of two labels"),
        pytest.param(f"https://{'i' * 64}@h:1", id="a name too long for a server name"),
        pytest.param("https://h:99999", id="a port that is none"),
        pytest.param("https://@h:1", id="an empty name"),
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        Address.parse(text)


def test_others_on_a_host_are_reached_through_its_proxy() -> None:
    assert on_host("https://i-1@10.0.0.2:7443", "c-2") == "https://c-2@10.0.0.2:7443"
    assert on_host("http://127.0.0.1:80", "c-2") == "http://127.0.0.1:80"
