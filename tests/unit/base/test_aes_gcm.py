"""AES-256-GCM and the root key of a home."""

import stat
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base import root_key as aes_gcm
from hostelry.base.errors import TerminalError
from hostelry.base.root_key import NotAuthenticError, RootKey, seal, unseal

KEY = bytes(range(32))


@cases(
    "key, nonce, plaintext, context, sealed",
    case(
        "case 14 of the GCM specification",
        bytes(32),
        bytes(12),
        bytes(16),
        b"",
        "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919",
    ),
    case(
        "case 16 of the GCM specification",
        bytes.fromhex("feffe9928665731c6d6a8f9467308308" * 2),
        bytes.fromhex("cafebabefacedbaddecaf888"),
        bytes.fromhex(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
        ),
        bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2"),
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
        "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
        "76fc6ece0f4e1768cddf8853bb2d551b",
    ),
)
def test_the_specifications_own_values(
    key: bytes, nonce: bytes, plaintext: bytes, context: bytes, sealed: str
) -> None:
    assert unseal(key, nonce + bytes.fromhex(sealed), context) == plaintext


@pytest.mark.parametrize("num_bytes", [0, 1, 4096, 1_000_001])
def test_what_is_sealed_is_unsealed_and_never_twice_the_same(num_bytes: int) -> None:
    plaintext = b"p" * num_bytes
    first, second = (seal(KEY, plaintext, b"context") for _ in range(2))
    assert unseal(KEY, first, b"context") == plaintext
    assert first != second
    assert len(first) == num_bytes + aes_gcm.NONCE_BYTES + aes_gcm.TAG_BYTES


@pytest.mark.parametrize("place", range(0, 44, 4))
def test_a_changed_byte_is_found(place: int) -> None:
    sealed = bytearray(seal(KEY, b"sixteen bytes ..", b""))
    sealed[place] ^= 1
    with pytest.raises(NotAuthenticError):
        unseal(KEY, bytes(sealed), b"")


@cases(
    "key, context, cut",
    case("another key", bytes(32), b"c", 0),
    case("another context", KEY, b"d", 0),
    case("a byte less", KEY, b"c", 1),
    case("less than nonce and tag", KEY, b"c", 30),
)
def test_nothing_else_unseals(key: bytes, context: bytes, cut: int) -> None:
    sealed = seal(KEY, b"plain", b"c")
    with pytest.raises(NotAuthenticError):
        unseal(key, sealed[: len(sealed) - cut], context)


def test_a_key_of_another_length_is_a_defect() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        seal(b"short", b"", b"")


def test_a_root_key_is_made_once_and_only_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "kms.key"
    key = RootKey(path).read(may_make=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert RootKey(path).read(may_make=False) == key
    assert len(key) == 32


@cases(
    "content, text",
    case("no file", None, "is missing"),
    case("no number", "zz", "cannot be read"),
    case("too short", "00ff", "holds 2 bytes"),
)
def test_a_lost_root_key_is_not_replaced(tmp_path: Path, content: str | None, text: str) -> None:
    path = tmp_path / "kms.key"
    if content is not None:
        path.write_text(content)
    with pytest.raises(TerminalError, match=text):
        RootKey(path).read(may_make=False)
