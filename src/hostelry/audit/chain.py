"""The chain of the audit trail: each record has the hash of the record before. Pure.

A record is one line of JSON. Its members ``number`` and ``previous`` (the SHA-256 of the line
before) make a chain, and ``mac`` at its end proves that the platform wrote it::

    {"number":7,"previous":"9f...","at":1.5,"account":"...","region":"...","source":"...",
     "event":{...},"mac":"c0..."}

Seals of files and marks (the newest record, the oldest that is kept) are signed in the same way.
A process that can write the files, but has no key, can make no line that fits.
"""

import hashlib
from hmac import compare_digest
from hmac import digest as hmac_digest
from typing import Any

import msgspec

from hostelry.base.json import decode

GENESIS = "0" * 64
_MAC = b',"mac":"'
_MAC_CHARACTERS = 64
_SUFFIX_BYTES = len(_MAC) + _MAC_CHARACTERS + len(b'"}')
SEAL_START = b'{"sealed":'
MAX_LINE_BYTES = 64 * 1024


class ChainHead(msgspec.Struct, frozen=True):
    """A place in the chain: a record's number and the SHA-256 of its line. The start is 0."""

    number: int = 0
    digest: str = GENESIS


class TrailLine(msgspec.Struct, frozen=True, kw_only=True):
    """A record as its line has it. `event` is a CloudTrail record as JSON.

    `account` and `region` own the resources of the call. `source` is the event's source.
    """

    number: int
    previous: str
    at: float
    account: str
    region: str
    source: str
    event: msgspec.Raw


class NewRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record that has no place in the chain yet. `event` is JSON."""

    at: float
    account: str
    region: str
    source: str
    event: bytes


class StoredLine(msgspec.Struct, frozen=True, kw_only=True):
    """A record with its place. `head` is the chain's head after it, `line` has no line end."""

    record: NewRecord
    head: ChainHead
    line: bytes


class SealedFile(msgspec.Struct, frozen=True, kw_only=True):
    """The last line of a full file: facts about its records, and the SHA-256 of their bytes.

    `head` is the last record. Beyond a number of accounts, `accounts` has the value None.
    """

    first: int
    head: ChainHead
    digest: str
    num_bytes: int
    since: float
    until: float
    sources: tuple[str, ...]
    accounts: tuple[str, ...] | None


class TrailAnchor(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the records that retention has removed: the chain begins after `head`."""

    head: ChainHead
    removed_at: float
    reason: str


class _Signed(msgspec.Struct):
    """A signed line with a seal or a mark."""

    sealed: msgspec.Raw


def derive_key(internal_key: str) -> bytes:
    """The key of a platform's trail, from the key of its processes."""
    return hmac_digest(internal_key.encode(), b"hostelry audit 1", "sha256")


def get_digest(line: bytes) -> str:
    """The SHA-256 of a line, by which the next line names it."""
    return hashlib.sha256(line).hexdigest()


def add_record(key: bytes, head: ChainHead, record: NewRecord) -> StoredLine:
    """The line of `record` as the one after `head`."""
    encode = msgspec.json.encode
    line = _sign(
        key,
        b'{"number":%d,"previous":"%b","at":%b,"account":%b,"region":%b,"source":%b,"event":%b'
        % (
            head.number + 1,
            head.digest.encode(),
            encode(record.at),
            encode(record.account),
            encode(record.region),
            encode(record.source),
            record.event,
        ),
    )
    return StoredLine(record=record, head=ChainHead(head.number + 1, get_digest(line)), line=line)


def parse_line(line: bytes) -> TrailLine:
    """The record of a line, whose MAC is not checked. Raises msgspec.MsgspecError."""
    return decode(line, TrailLine)


def is_authentic(key: bytes, line: bytes) -> bool:
    """Whether a line is signed with `key`."""
    body, mac = line[:-_SUFFIX_BYTES], line[-_SUFFIX_BYTES:]
    if not (mac.startswith(_MAC) and mac.endswith(b'"}')):
        return False
    return compare_digest(mac[len(_MAC) : -2], _compute_mac(key, body))


def sign_value(key: bytes, value: Any) -> bytes:
    """A seal or mark as a signed line."""
    return _sign(key, SEAL_START + msgspec.json.encode([type(value).__name__, value]))


def read_value(key: bytes, line: bytes, kind: type[Any]) -> Any:
    """The seal or mark of a line. Raises ValueError if it is not signed or is of another kind."""
    if not is_authentic(key, line):
        raise ValueError("its MAC is wrong")
    name, value = decode(bytes(decode(line, _Signed).sealed), tuple[str, msgspec.Raw])
    if name != kind.__name__:
        raise ValueError(f"it is a {name}")
    return decode(bytes(value), kind)


def _sign(key: bytes, body: bytes) -> bytes:
    return b'%b,"mac":"%b"}' % (body, _compute_mac(key, body))


def _compute_mac(key: bytes, body: bytes) -> bytes:
    return hmac_digest(key, body, "sha256").hex().encode()
