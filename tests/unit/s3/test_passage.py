"""The S3 port's proof of who asks: what a presigned URL shows of a key proves nothing."""

import pytest
from tests.unit.s3.signed_heads import CREDENTIALS, NOW, passage, signed

from hostelry.aws.temporary_keys import FOR_OBJECTS, AgentSeal, Session, TemporaryKeys, TokenSeal
from hostelry.base.clock import ManualClock
from hostelry.s3.admission import S3Refusal
from hostelry.s3.head import Head, parse_head, write_head


def keys_of(role_name: str, purpose: str = "") -> TemporaryKeys:
    """Keys of a copy, or of a role; with a purpose an agent's."""
    session = Session(
        access_key_id="ASIAX",
        account_id=CREDENTIALS.account_id,
        expires_at=int(NOW) + 60,
        role_name=role_name,
        session_name="s",
        purpose=purpose,
    )
    if purpose:
        return AgentSeal(CREDENTIALS.agents_key).issue(session)
    return TokenSeal(CREDENTIALS.internal_key).issue(session)


def altered(head: Head, **headers: str | None) -> Head:
    """The head with other headers; None leaves one out. ``_`` in a name stands for ``-``."""
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


@pytest.mark.parametrize(
    ("head", "code"),
    [
        pytest.param(PUT, None, id="a signature with the body's hash"),
        pytest.param(signed("GET", "/b?notification", in_query=True), None, id="a presigned URL"),
        pytest.param(OF_A_ROLE, None, id="a role's keys"),
        pytest.param(OF_A_COPY, "AccessDenied", id="keys that may only invoke"),
        pytest.param(signed("GET", "/b/k", keys=OF_AN_AGENT), None, id="an agent reads"),
        pytest.param(
            signed("PUT", "/b/k", keys=OF_AN_AGENT), "AccessDenied", id="and writes nothing"
        ),
        pytest.param(
            altered(PUT, authorization=NO_HASH, x_amz_content_sha256=None),
            "InvalidRequest",
            id="a signature of zeros, and no hash of the body",
        ),
        pytest.param(
            altered(PUT, x_amz_content_sha256=None),
            "InvalidRequest",
            id="a signature whose hash of the body was left out",
        ),
        pytest.param(
            altered(PUT, authorization=ZEROS), "SignatureDoesNotMatch", id="a signature of zeros"
        ),
        pytest.param(
            altered(PUT, x_amz_content_sha256="UNSIGNED-PAYLOAD"),
            "SignatureDoesNotMatch",
            id="a hash that was replaced",
        ),
        pytest.param(NOTHING, "AccessDenied", id="no signature"),
        pytest.param(altered(NOTHING, authorization="x"), "SignatureDoesNotMatch", id="no form"),
    ],
)
def test_only_a_proof_counts_as_signed(head: Head, code: str | None) -> None:
    checked = passage(ManualClock(NOW))
    if code is None:
        checked.check_signed(head)
        return
    with pytest.raises(S3Refusal) as refused:
        checked.check_signed(head)
    assert refused.value.code == code
