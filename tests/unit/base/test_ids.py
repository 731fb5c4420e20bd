import uuid

import pytest

from hostelry.base.ids import (
    new_access_key_id,
    new_account_id,
    new_request_id,
    new_temporary_key_id,
    read_key_account,
)


def test_a_request_id_is_a_random_uuid() -> None:
    ids = [new_request_id() for _ in range(200)]
    for text in ids:
        read = uuid.UUID(text)
        assert (str(read), read.version, read.variant) == (text, 4, uuid.RFC_4122)
    assert len(set(ids)) == 200


@pytest.mark.parametrize("account", ["000000000000", "000000000007", "999999999999"])
def test_an_access_key_id_holds_its_account(account: str) -> None:
    for new_id, prefix in ((new_access_key_id, "AKIA"), (new_temporary_key_id, "ASIA")):
        ids = {new_id(account) for _ in range(50)}
        assert len(ids) == 50
        assert {(it[:4], len(it), read_key_account(it)) for it in ids} == {(prefix, 20, account)}


@pytest.mark.parametrize("key_id", ["", "AKIA", "AKIA" + "a" * 16, "AKIA" + "1" * 16])
def test_other_texts_hold_no_account(key_id: str) -> None:
    assert read_key_account(key_id) is None


def test_an_account_id_has_twelve_digits() -> None:
    ids = {new_account_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(len(it) == 12 and it.isdigit() and it[0] != "0" for it in ids)
