"""The S3 port verifies callers: the visible part of a key in a presigned URL proves nothing."""

import pytest
from tests.cases import case, cases
from tests.unit.s3.signed_heads import CREDENTIALS, NOW, passage, signed

from hostelry.aws.temporary_keys import FOR_OBJECTS, AgentSeal, Session, TemporaryKeys, TokenSeal
from hostelry.base.clock import ManualClock
from hostelry.s3.admission import S3Refusal
from hostelry.s3.head import Head, parse_head, write_head


def keys_of(role_name: str, purpose: str = "") -> TemporaryKeys:
    """Keys of a copy or a role. With a purpose they are an agent's."""
    session = Session(
        access_key_id="ASIAX",
        account_id=CREDENTIALS.account_id,
        expires_at=int(NOW) + 60,
        role_name=role_name,
        role_id="AROAR" if role_name else "",
        session_name="s",
        purpose=purpose,
    )
    if purpose:
        return AgentSeal(CREDENTIALS.agents_key).issue(session)
    return TokenSeal(CREDENTIALS.internal_key).issue(session)


def altered(head: Head, **headers: str | None) -> Head:
    """The head with other headers. None removes a header. ``_`` in a name stands for ``-``."""
    changed = {name.replace("_", "-"): value for name, value in headers.items()}
    kept = [(name, changed.pop(name.lower(), value)) for name, value in head.headers]
    lines = [(name, value) for name, value in [*kept, *changed.items()] if value is not None]
    return parse_head(write_head(head.method, head.target, lines))


PUT = signed("PUT", "/b?notification")
# All but the signature is in every presigned URL.
ZEROS = PUT.values["authorization"].rpartition("=")[0] + "=" + "0" * 64
NO_HASH = ZEROS.replace("x-amz-content-sha256;", "")
NOTHING = parse_head(b"PUT /b?notification HTTP/1.1\r\nHost: h\r\n\r\n")
OF_AN_AGENT = keys_of("", FOR_OBJECTS)
OF_A_ROLE, OF_A_COPY = (signed("PUT", "/b?notification", keys=keys_of(it)) for it in ("r", ""))


@cases(
    "head, code",
    case("a signature with the body's hash", PUT, None),
    case("a presigned URL", signed("GET", "/b?notification", in_query=True), None),
    case("a role's keys", OF_A_ROLE, None),
    case("keys that may only invoke", OF_A_COPY, "AccessDenied"),
    case("an agent reads", signed("GET", "/b/k", keys=OF_AN_AGENT), None),
    case("and writes nothing", signed("PUT", "/b/k", keys=OF_AN_AGENT), "AccessDenied"),
    case(
        "a signature of zeros, and no hash of the body",
        altered(PUT, authorization=NO_HASH, x_amz_content_sha256=None),
        "InvalidRequest",
    ),
    case(
        "a signature whose hash of the body was left out",
        altered(PUT, x_amz_content_sha256=None),
        "InvalidRequest",
    ),
    case("a signature of zeros", altered(PUT, authorization=ZEROS), "SignatureDoesNotMatch"),
    case(
        "a hash that was replaced",
        altered(PUT, x_amz_content_sha256="UNSIGNED-PAYLOAD"),
        "SignatureDoesNotMatch",
    ),
    case("no signature", NOTHING, "AccessDenied"),
    case("no form", altered(NOTHING, authorization="x"), "SignatureDoesNotMatch"),
)
def test_only_a_proof_counts_as_signed(head: Head, code: str | None) -> None:
    checked = passage(ManualClock(NOW))
    if code is None:
        checked.check_permitted(head, "")
        return
    with pytest.raises(S3Refusal) as refused:
        checked.check_permitted(head, "")
    assert refused.value.code == code
