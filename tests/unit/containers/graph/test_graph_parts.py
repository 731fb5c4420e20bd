"""A graph's server: its file and start, its cache of answers, its signatures."""

from pathlib import Path

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from tests.cases import case, cases

from hostelry.aws.sigv4 import Verifier
from hostelry.aws.temporary_keys import Session, TokenSeal
from hostelry.base.clock import ManualClock
from hostelry.base.errors import TerminalError
from hostelry.base.http import HttpRequest
from hostelry.containers.graph.__main__ import build_caches, read_plan
from hostelry.containers.graph.call import ENTRY_BYTES, AnswerCache, hash_input
from hostelry.containers.graph.functions import build_launch
from hostelry.containers.graph.targets import CallKeys, CallSigner
from hostelry.graph.progress import StepOutcome
from hostelry.graph.steps import GraphDocumentError, StepFault

CACHED = """
output: a
steps:
  a: {cache: {of: b, ttl_s: 60, max_bytes: 600}}
  b: {cache: {of: c, ttl_s: 60, max_bytes: 500}}
  c: {call: {endpoint: e}}
"""
ANSWER = StepOutcome(value="x" * 98)  # 100 bytes as JSON
NOW = 1_700_000_000.0
SESSION = Session(access_key_id="ASIA0000000000000000", account_id="111122223333",
                  expires_at=int(NOW) + 60, session_name="i-1")  # fmt: skip


@cases(
    "text, error, reason",
    case("no file", None, TerminalError, "the model's archive has no graph.yaml"),
    case("no text", b"\xff", TerminalError, "graph.yaml cannot be read"),
    case("no graph", b"steps: {}", GraphDocumentError, "missing required field `output`"),
)  # fmt: skip
def test_a_folder_without_a_graph_ends_the_start(
    tmp_path: Path, text: bytes | None, error: type[Exception], reason: str
) -> None:
    if text is not None:
        (tmp_path / "graph.yaml").write_bytes(text)
    with pytest.raises(error, match=reason):
        read_plan(tmp_path)


@cases(
    "reserved, fits",
    case("no reservation", "", True),
    case("just enough", "1100", True),
    case("too little", "1099", False),
)
def test_caches_take_no_more_than_is_reserved(tmp_path: Path, reserved: str, *, fits: bool) -> None:
    (tmp_path / "graph.yaml").write_text(CACHED)
    plan, environment = read_plan(tmp_path), {"HOSTELRY_MEMORY_BYTES": reserved}
    if fits:
        assert set(build_caches(plan, environment)) == {"a", "b"}
        return
    with pytest.raises(TerminalError, match=r"may take 1100 bytes .* has reserved 1099"):
        build_caches(plan, environment)


@pytest.mark.parametrize("policy", ["off", "on", "Trusted"])
def test_functions_run_where_the_operator_lets_them(tmp_path: Path, policy: str) -> None:
    with pytest.raises(TerminalError, match=f"HOSTELRY_CUSTOM_CODE is '{policy}'"):
        build_launch(tmp_path, ("f:g",), {"HOSTELRY_CUSTOM_CODE": policy})


def test_a_process_of_functions_gets_no_variable_with_a_secret(tmp_path: Path) -> None:
    given = {"HOSTELRY_CUSTOM_CODE": "trusted", "AWS_SECRET_ACCESS_KEY": "s", "HF_TOKEN": "t",
             "LANG": "C"}  # fmt: skip
    launch = build_launch(tmp_path, ("f:g",), given)
    secrets = {"AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "HOSTELRY_CUSTOM_CODE"}
    assert not secrets & {*launch.environment}
    assert launch.environment["LANG"] == "C"


def test_an_answer_is_kept_for_its_time() -> None:
    clock = ManualClock()
    cache = AnswerCache(10, 10_000, clock)
    cache.put(b"k", ANSWER)
    clock.advance(9.9)
    assert cache.get(b"k") is ANSWER
    clock.advance(0.1)
    assert cache.get(b"k") is None
    assert (len(cache), cache.size_bytes, cache.hits, cache.misses) == (0, 0, 1, 1)


def test_the_least_recently_used_leaves_for_room() -> None:
    cache = AnswerCache(10, 2 * (ENTRY_BYTES + 100), ManualClock())
    for key in (b"1", b"2"):
        cache.put(key, ANSWER)
    cache.get(b"1")
    cache.put(b"3", ANSWER)
    assert [cache.get(key) is not None for key in (b"1", b"2", b"3")] == [True, False, True]
    assert cache.size_bytes == 2 * (ENTRY_BYTES + 100)


@cases(
    "outcome",
    case("larger than the cache", StepOutcome(value="x" * 5000)),
    case("dropped", StepOutcome(is_dropped=True)),
    case("failed", StepOutcome(fault=StepFault(step="s", reason="r", status=424))),
)
def test_some_outcomes_are_not_kept_and_take_the_place_of_an_older_one(
    outcome: StepOutcome,
) -> None:
    cache = AnswerCache(10, 2000, ManualClock())
    cache.put(b"k", ANSWER)
    cache.put(b"k", outcome)
    assert cache.get(b"k") is None
    assert cache.size_bytes == 0


@cases(
    "one, other, equal",
    case("the order of keys", {"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
    case("the order of a list", [1, 2], [2, 1], False),
    case("a text and bytes", "x", b'"x"', False),
    case("1 and true", 1, True, False),
)
def test_a_key_is_the_content(one: object, other: object, *, equal: bool) -> None:
    keys = [hash_input(StepOutcome(value=it)) for it in (one, other)]
    assert (keys[0] == keys[1]) is equal


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


@cases(
    "path, headers, body",
    case("a call", "/endpoints/e/invocations", {"content-type": "text/csv"}, b"1,2"),
    case("blanks in a header", "/endpoints/e/invocations", {"X-Hostelry-Graph-Path": "a  b, c"},
        b""),
    case("a name that is encoded", "/endpoints/a%20b/invocations-response-stream", {},
        b"x" * 10_000),
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
