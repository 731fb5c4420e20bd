import pytest
from tests.cases import case, cases

from hostelry.base.operator_secrets import (
    SecretPurpose,
    shown_variables,
    without_login,
    without_logins,
)

INDEXES = {
    "PIP_INDEX_URL": "https://pypi.example/simple",
    "UV_INDEX": "https://a.example/x https://b.example/y",
}
OPERATOR = {
    "PATH": "/bin",
    "HF_TOKEN": "t",
    "HF_TOKEN_PATH": "/o/token",
    "https_proxy": "http://me:pw@proxy:3128",
    "HF_ENDPOINT": "https://me:pw@hub.example/mirror",
    "PIP_INDEX_URL": "https://me:pw@pypi.example/simple",
    "UV_INDEX": "https://me:pw@a.example/x https://b.example/y",
    "UV_INDEX_OWN_PASSWORD": "pw",
}


@cases(
    "secrets, differing",
    case("both purposes", (SecretPurpose.HUB, SecretPurpose.PROXY), {}),
    case(
        "without the hub no token, nor the file that its client would read",
        (SecretPurpose.PROXY,),
        {"HF_TOKEN": None, "HF_TOKEN_PATH": "/dev/null"},
    ),
    case(
        "without a proxy's login its address is left",
        (SecretPurpose.HUB,),
        {"https_proxy": "http://proxy:3128", "HF_ENDPOINT": "https://hub.example/mirror"},
    ),
)
def test_a_program_sees_the_secrets_of_its_purposes(
    secrets: tuple[SecretPurpose, ...], differing: dict[str, str | None]
) -> None:
    given = {**OPERATOR, **INDEXES, "UV_INDEX_OWN_PASSWORD": None, **differing}
    wanted = {name: it for name, it in given.items() if it is not None}
    assert shown_variables(OPERATOR, secrets) == wanted


@pytest.mark.parametrize(
    ("address", "left"),
    [
        ("http://proxy:3128", "http://proxy:3128"),
        ("user:pw@proxy:3128", "proxy:3128"),
        ("http://user:p@ss@proxy", "http://proxy"),
        ("http://user:p://ss@proxy", "http://proxy"),
        ("user:p://ss@proxy", "proxy"),
        ("", ""),
    ],
)
def test_an_address_is_left_without_its_login(address: str, left: str) -> None:
    assert without_login(address) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            "no index at https://me:pw@pypi.example/simple",
            "no index at https://pypi.example/simple",
        ),
        ("https://me:p@ss@a/x,https://b@c/y", "https://a/x,https://c/y"),
        ("git+https://host/repo@v1 and me@host", "git+https://host/repo@v1 and me@host"),
        ("a://", "a://"),
    ],
)
def test_addresses_in_a_line_are_left_without_their_logins(text: str, left: str) -> None:
    assert without_logins(text) == left
