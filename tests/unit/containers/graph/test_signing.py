"""Signatures of a graph's calls are those of botocore, and the gateway accepts them."""

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from hostelry.aws.sigv4 import Verifier
from hostelry.aws.temporary_keys import Session, TokenSeal
from hostelry.base.http import HttpRequest
from hostelry.containers.graph.targets import CallKeys, CallSigner

NOW = 1_700_000_000.0
SESSION = Session(access_key_id="ASIA0000000000000000", account_id="111122223333",
                  expires_at=int(NOW) + 60, session_name="i-1")  # fmt: skip


def signed(path: str, headers: dict[str, str], body: bytes) -> tuple[bytes, CallKeys]:
    keys = TokenSeal("home").issue(SESSION)
    given = CallKeys(
        gateway_url="http://127.0.0.1:8787",
        region="us-east-1",
        access_key_id=keys.access_key_id,
        secret_access_key=keys.secret_access_key,
        session_token=keys.session_token,
        expires_at=keys.expires_at,
    )
    return CallSigner(given).head(path, headers, body, NOW), given


def request_of(head: bytes, body: bytes) -> HttpRequest:
    line, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, path, _ = line.split(" ")
    headers = {name.lower(): value for name, _, value in (it.partition(": ") for it in lines)}
    return HttpRequest(method, path, "", headers, body)


@pytest.mark.parametrize(
    ("path", "headers", "body"),
    [
        pytest.param("/endpoints/e/invocations", {"content-type": "text/csv"}, b"1,2", id="a call"),
        pytest.param("/endpoints/e/invocations", {"X-Hostelry-Graph-Path": "a  b, c"}, b"",
                     id="blanks in a header"),
        pytest.param("/endpoints/a%20b/invocations-response-stream", {}, b"x" * 10_000,
                     id="a name that is encoded"),
    ],
)  # fmt: skip
def test_the_gateway_knows_who_signed(path: str, headers: dict[str, str], body: bytes) -> None:
    head, _ = signed(path, headers, body)
    verifier = Verifier(lambda _: None, seal=TokenSeal("home"))
    identity = verifier.verify(request_of(head, body), NOW + 1)
    assert identity.session == SESSION
    assert identity.service == "sagemaker"
    assert SESSION.is_agents


def test_the_signature_is_botocores(monkeypatch: pytest.MonkeyPatch) -> None:
    import botocore.auth

    head, keys = signed("/endpoints/e/invocations", {"content-type": "text/csv"}, b"1,2")
    ours = request_of(head, b"1,2").headers
    request = AWSRequest(
        "POST", f"{keys.gateway_url}/endpoints/e/invocations", data=b"1,2",
        headers={"content-type": "text/csv", "x-amz-content-sha256": ours["x-amz-content-sha256"]},
    )  # fmt: skip
    credentials = Credentials(keys.access_key_id, keys.secret_access_key, keys.session_token)
    moment = botocore.auth.datetime.datetime.fromtimestamp(NOW, botocore.auth.datetime.timezone.utc)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: moment)
    SigV4Auth(credentials, "sagemaker", "us-east-1").add_auth(request)
    assert request.headers["Authorization"] == ours["authorization"]


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1:1", "http://127.0.0.1", "127.0.0.1:1", "http://127.0.0.1:port"],
)
def test_an_address_has_host_and_port(url: str) -> None:
    _, keys = signed("/", {}, b"")
    with pytest.raises(ValueError, match=r"(?i)port"):
        _ = CallKeys(**{it: getattr(keys, it) for it in keys.__struct_fields__}
                     | {"gateway_url": url}).address  # fmt: skip
