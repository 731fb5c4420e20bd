from typing import Any

import pytest

from hostelry.cli.shim.sitecustomize import redirect, to_gateway

GATEWAY = "http://127.0.0.1:8787"


@pytest.fixture(autouse=True)
def gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", GATEWAY)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("https://sts.us-east-1.amazonaws.com", id="a region"),
        pytest.param("https://sts.amazonaws.com/", id="the global host"),
        pytest.param("https://STS.eu-west-1.amazonaws.com", id="in capitals"),
        pytest.param("https://sts.us-gov-west-1.amazonaws.com:443", id="government, with a port"),
        pytest.param("https://sts-fips.us-east-1.amazonaws.com", id="FIPS"),
        pytest.param("https://sts.cn-north-1.amazonaws.com.cn", id="China"),
        pytest.param("https://sts.us-east-1.api.aws", id="dual stack"),
    ],
)
def test_sts_hosts_of_aws_lead_to_the_gateway(url: str) -> None:
    assert to_gateway(url) == GATEWAY


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("http://127.0.0.1:9999", id="another server"),
        pytest.param("https://sts.us-east-1.amazonaws.com.evil.example", id="a longer host"),
        pytest.param("https://s3.us-east-1.amazonaws.com", id="another service"),
        pytest.param(None, id="none given"),
    ],
)
def test_other_endpoints_are_left_alone(url: str | None) -> None:
    assert to_gateway(url) == url


def test_outside_exec_nothing_is_redirected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    url = "https://sts.amazonaws.com"
    assert to_gateway(url) == url


def test_an_endpoint_is_redirected_by_keyword_and_by_position() -> None:
    class Session:
        def create_client(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            return args, kwargs

    redirect(Session)
    url = "https://sts.amazonaws.com"
    assert Session().create_client("sts", endpoint_url=url) == (("sts",), {"endpoint_url": GATEWAY})
    positional = ("sts", None, None, True, None, url, "key")
    assert Session().create_client(*positional) == ((*positional[:5], GATEWAY, "key"), {})
    assert Session().create_client("s3") == (("s3",), {})
