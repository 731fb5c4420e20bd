import pytest

from hostelry.base.operator_secrets import SecretPurpose, shown_variables, without_login

OPERATOR = {
    "PATH": "/bin",
    "HF_TOKEN": "t",
    "HF_TOKEN_PATH": "/o/token",
    "https_proxy": "http://me:pw@proxy:3128",
    "HF_ENDPOINT": "https://me:pw@hub.example/mirror",
}


@pytest.mark.parametrize(
    ("secrets", "differing"),
    [
        pytest.param(
            (SecretPurpose.HUB, SecretPurpose.PROXY), {}, id="a program with both purposes sees all"
        ),
        pytest.param(
            (SecretPurpose.PROXY,),
            {"HF_TOKEN": None, "HF_TOKEN_PATH": "/dev/null"},
            id="without the hub no token, nor the file that its client would read",
        ),
        pytest.param(
            (SecretPurpose.HUB,),
            {"https_proxy": "http://proxy:3128", "HF_ENDPOINT": "https://hub.example/mirror"},
            id="without a proxy's login its address is left",
        ),
    ],
)
def test_a_program_sees_the_secrets_of_its_purposes(
    secrets: tuple[SecretPurpose, ...], differing: dict[str, str | None]
) -> None:
    wanted = {name: it for name, it in {**OPERATOR, **differing}.items() if it is not None}
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
