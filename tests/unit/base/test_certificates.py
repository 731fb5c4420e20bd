import base64

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_csr
from tests.cases import case, cases

from hostelry.base.certificates import (
    LEAF_S,
    Pair,
    bundle,
    check_pair,
    issue,
    new_authority,
    new_key,
    read_facts,
    signing_request,
    split,
    still_valid,
)
from hostelry.base.errors import TerminalError
from hostelry.base.peers import PeerName, PeerRole

NOW = 1_700_000_000.0
AGENT = PeerName("one", PeerRole.AGENT, "i-1")
OLD, NEW = new_authority("one", NOW), new_authority("one", NOW)


def leaf(authority: Pair = OLD, now: float = NOW) -> Pair:
    """A key and its certificate."""
    key = new_key()
    return Pair(issue(authority, signing_request(key), AGENT, now), key)


GIVEN = leaf()


def test_a_certificate_has_its_holder_and_when_it_is_renewed() -> None:
    read = read_facts(GIVEN.certificate)
    assert read.uris == ("spiffe://one/agent/i-1",)
    assert read.renew_at() == pytest.approx(NOW + LEAF_S * 2 / 3)
    assert check_pair(GIVEN, OLD.certificate, NOW) == AGENT


def test_while_an_authority_is_rotated_certificates_of_both_are_accepted() -> None:
    both = bundle([NEW.certificate, OLD.certificate, OLD.certificate])
    assert len(split(both)) == 2
    assert check_pair(GIVEN, both, NOW) == check_pair(leaf(NEW), both, NOW) == AGENT
    assert read_facts(NEW.certificate).subject != read_facts(OLD.certificate).subject


def test_a_certificate_ends_with_its_authority() -> None:
    short = new_authority("one", NOW, valid_s=10.0)
    assert read_facts(leaf(short).certificate).not_after == NOW + 10
    assert still_valid(bundle([short.certificate, OLD.certificate]), NOW + 11) == OLD.certificate


@cases(
    "pair, trusted, now, reason",
    case(
        "another key", Pair(GIVEN.certificate, new_key()), OLD.certificate, NOW, "not of one pair"
    ),
    case("expired", GIVEN, OLD.certificate, NOW + LEAF_S + 1, "valid from 2023-11-14"),
    case("not valid yet", GIVEN, OLD.certificate, NOW - 7200, "valid from"),
    case("another authority", GIVEN, NEW.certificate, NOW, "is signed by"),
    case("no authority", GIVEN, b"", NOW, "cannot be read"),
    case("no certificate", Pair(b"x", b"y"), OLD.certificate, NOW, "cannot be read"),
    case("no key", Pair(GIVEN.certificate, b"y"), OLD.certificate, NOW, "key cannot be read"),
    case("without a name", OLD, OLD.certificate, NOW, "has not exactly one URI"),
)
def test_a_pair_that_peers_would_refuse(
    pair: Pair, trusted: bytes, now: float, reason: str
) -> None:
    with pytest.raises(TerminalError, match=reason):
        check_pair(pair, trusted, now)


def test_a_chain_leads_to_its_authority_by_the_one_between() -> None:
    # Leaf, then what signed it, as an operator's file has them.
    chained = Pair(GIVEN.certificate + OLD.certificate, GIVEN.key)
    assert check_pair(chained, OLD.certificate, NOW) == AGENT


def test_a_request_must_be_signed_by_its_own_key() -> None:
    good = signing_request(new_key())
    der = load_pem_x509_csr(good).public_bytes(Encoding.DER)
    bad = bytearray(der)
    bad[-1] ^= 1
    text = base64.encodebytes(bytes(bad))
    altered = (
        b"-----BEGIN CERTIFICATE REQUEST-----\n" + text + b"-----END CERTIFICATE REQUEST-----\n"
    )
    for wrong in (b"nothing", altered):
        with pytest.raises(ValueError, match="signing request"):
            issue(OLD, wrong, AGENT, NOW)


@cases(
    "uris",
    case("none", []),
    case("two", ["spiffe://one/agent/i-1", "spiffe://one/control/a"]),
    case("an unknown role", ["spiffe://one/king/i-1"]),
    case("no name", ["spiffe://one/agent/"]),
    case("a longer path", ["spiffe://one/agent/i-1/x"]),
    case("another scheme", ["https://one/agent/i-1"]),
)
def test_names_that_are_none(uris: list[str]) -> None:
    with pytest.raises(ValueError, match="certificate"):
        PeerName.find_in(uris)


def test_a_name_is_read_back() -> None:
    assert PeerName.find_in(["https://elsewhere", AGENT.uri]) == AGENT
