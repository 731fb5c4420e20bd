"""Principals that control publishes, kept on disk, and trusted for some hours without control."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
from tests.cases import case, cases

from hostelry.aws.access_keys import AccessKeySecrets
from hostelry.aws.sigv4 import Secret
from hostelry.base.clock import ManualClock
from hostelry.principals.caller import Principals
from hostelry.principals.source import (
    TRUSTED_S,
    FixedPrincipals,
    PublishedPrincipals,
    TableError,
    _decode,
    build_key_lookup,
)
from hostelry.principals.table import KeyRow, PrincipalTable

OWNER = "111122223333"
TABLE = PrincipalTable(version="v1", access_keys={"AKIA1": KeyRow(account=OWNER, user="x/ann")})


class Polls(PublishedPrincipals):
    """Polls that answer in turn: a table, nothing new, or an error."""

    answers: Sequence[PrincipalTable | Exception | None] = ()

    async def _poll(self) -> PrincipalTable | None:
        if not self.answers:
            raise asyncio.CancelledError
        first, *self.answers = self.answers
        if isinstance(first, Exception):
            raise first
        return first


def followed(
    path: Path, clock: ManualClock, *answers: PrincipalTable | Exception | None
) -> PublishedPrincipals:
    source = Polls(None, "http://control", "key", OWNER, path, clock)  # type: ignore[arg-type]
    source.answers = answers

    async def follow() -> None:
        try:
            await source.follow()
        except asyncio.CancelledError:
            return

    asyncio.run(follow())
    return source


def test_a_new_table_is_used_and_kept(tmp_path: Path) -> None:
    path, clock = tmp_path / "principals.json", ManualClock()
    assert followed(path, clock, TABLE).principals.table == TABLE
    assert path.stat().st_mode & 0o777 == 0o600
    later = followed(path, clock)
    assert later.principals.table == TABLE, "also after a restart without control"


def test_a_poll_that_fails_changes_nothing(tmp_path: Path) -> None:
    path, clock = tmp_path / "principals.json", ManualClock()
    source = followed(path, clock, TABLE, TableError("control answered 503"), None)
    assert source.principals.table == TABLE
    assert source.is_trusted


def test_principals_are_trusted_for_some_hours_without_control(tmp_path: Path) -> None:
    path, clock = tmp_path / "principals.json", ManualClock()
    source = followed(path, clock, TABLE)
    clock.advance(TRUSTED_S - 1)
    assert source.is_trusted
    clock.advance(2)
    assert not source.is_trusted


def test_without_a_file_and_control_only_the_root_is_known(tmp_path: Path) -> None:
    source = followed(tmp_path / "principals.json", ManualClock())
    assert source.principals.table == PrincipalTable()
    assert not source.is_trusted


@cases(
    "body",
    case("half a table", msgspec.json.encode(TABLE)[:-9]),
    case("no JSON", b"\xff\x00"),
    case("other types", b'{"version": 1}'),
)
def test_a_table_that_cannot_be_read_is_no_table(body: bytes, tmp_path: Path) -> None:
    path = tmp_path / "principals.json"
    path.write_bytes(body)
    assert followed(path, ManualClock()).principals.table == PrincipalTable()
    try:
        _decode(body)
    except TableError:
        return
    raise AssertionError("it was read")


def test_secrets_are_derived_for_active_keys_alone() -> None:
    secrets = AccessKeySecrets("the key of a home")
    own = {"AKIAOWN": Secret(secret_access_key="s", account_id=OWNER)}
    source = FixedPrincipals(Principals(TABLE, OWNER))
    find = build_key_lookup(source, own, secrets)
    assert find("AKIAOWN") is own["AKIAOWN"]
    found = find("AKIA1")
    assert found is not None
    assert (found.secret_access_key, found.user) == (secrets.derive("AKIA1"), "ann")
    assert find("AKIA1") is found, "signatures are verified by the same object"
    assert find("AKIAGONE") is None
    source.principals = Principals(PrincipalTable(), OWNER)
    assert find("AKIA1") is None


def test_secrets_differ_by_key_and_home() -> None:
    first, second = AccessKeySecrets("a"), AccessKeySecrets("b")
    drawn = {first.derive("AKIA1"), first.derive("AKIA2"), second.derive("AKIA1")}
    assert len(drawn) == 3
    assert all(len(it) == 40 for it in drawn)
