"""Writes of passes, which no pass follows."""

import pytest

from hostelry.domain.scope import Scope
from hostelry.reconcile.own_writes import OwnWrites
from hostelry.store.protocol import Change, Key, Record, RecordWrite

KEY = Key(kind="copy", scope=Scope("111122223333", "us-west-2"), name="c-1")


def change(body: bytes | None) -> Change:
    record = None if body is None else Record(key=KEY, version=7, body=body)
    return Change(revision=7, key=KEY, record=record)


@pytest.mark.parametrize(
    ("written", "seen", "is_own"),
    [
        pytest.param([b"1"], b"1", True, id="what a pass wrote"),
        pytest.param([b"1", b"2"], b"2", True, id="what it wrote last, of two writes"),
        pytest.param([None], None, True, id="what a pass removed"),
        pytest.param([b"1"], b"2", False, id="a call changed it afterwards"),
        pytest.param([b"1"], None, False, id="it was removed afterwards"),
        pytest.param([None], b"1", False, id="it was created again"),
        pytest.param([], b"1", False, id="a call wrote it"),
    ],
)
def test_a_change_is_an_own_one_where_it_has_what_a_pass_wrote(
    written: list[bytes | None], seen: bytes | None, is_own: bool
) -> None:
    own = OwnWrites()
    for body in written:
        own.expect([RecordWrite(key=KEY, body=body, expect=1)])
    assert own.others([change(seen)]) == ([] if is_own else [change(seen)])
    assert own.others([change(seen)]) == [change(seen)], "each is known once"
