"""Changes of the table of cells, and the artifacts that move with an endpoint."""

from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cells.assignment_file import AccountTable, ApartTable, AssignmentDocument, CellTable
from hostelry.cli.cells.move import (
    add_cell,
    buckets_in,
    move_resources_apart,
    uris_in,
    wait_until_unused,
)
from hostelry.home.home import Credentials

ACCOUNT = "111122223333"
CREDENTIALS = Credentials(
    account_id=ACCOUNT, region="us-east-1", access_key_id="KEY", secret_access_key="s",
    internal_key="i", openai_api_key="o",
)  # fmt: skip
BLUE = add_cell(AssignmentDocument(cells={}), "blue", "http://b:1", CREDENTIALS)
BOTH = add_cell(BLUE, "green", "http://g:1", CREDENTIALS)
SHOP = ApartTable(account=ACCOUNT, cell="green", endpoints=("shop",), components=("llama",))


def test_the_first_cell_of_an_account_has_it_and_no_key_is_kept_in_clear() -> None:
    (account,) = BOTH.accounts
    assert (account.id, account.cell, account.access_key_ids) == (ACCOUNT, "blue", ("KEY",))
    assert len(account.openai_key_sha256[0]) == 64
    assert list(BOTH.cells.values()) == [CellTable(url="http://b:1"), CellTable(url="http://g:1")]


@cases(
    "before, moved, apart",
    case("away from its account's cell", (), SHOP, (SHOP,)),
    case("back to it", (SHOP,),
        ApartTable(account=ACCOUNT, cell="blue", endpoints=("shop",), components=("llama",)), ()),
    case("from a third cell, which keeps the rest",
        (ApartTable(account=ACCOUNT, cell="third", endpoints=("shop", "other")),), SHOP,
        (SHOP, ApartTable(account=ACCOUNT, cell="third", endpoints=("other",)))),
    case("twice is once", (SHOP,), SHOP, (SHOP,)),
    case("another account's endpoint of the name stays",
        (ApartTable(account="9" * 12, cell="third", endpoints=("shop",)),), SHOP,
        (SHOP, ApartTable(account="9" * 12, cell="third", endpoints=("shop",)))),
)  # fmt: skip
def test_a_move_changes_the_table(
    before: tuple[ApartTable, ...], moved: ApartTable, apart: tuple[ApartTable, ...]
) -> None:
    document = AssignmentDocument(
        cells=BOTH.cells, accounts=(AccountTable(id=ACCOUNT, cell="blue"),), apart=before
    )
    assert move_resources_apart(document, moved).apart == apart


def test_what_copies_read_is_copied_and_every_bucket_is_made() -> None:
    document: dict[str, Any] = {
        "models": {
            "m": {
                "ModelDataUrl": "s3://in/m.tar.gz",
                "Environment": {"HF_MODEL_ID": "s3://in/llm/"},
            }
        },
        "endpoints": {
            "e": {
                "AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "s3://out/answers"}},
                "Components": {
                    "c": {
                        "ModelDataSource": {"S3DataSource": {"S3Uri": "s3://in/folder/"}},
                        "Adapters": {"a": "s3://in/a.tar.gz", "b": {"ArtifactUrl": "s3://in/b"}},
                        "Environment": {"NOTE": "s3://secret/key"},
                    }
                },
            }
        },
    }
    assert sorted(uris_in(document)) == [
        "s3://in/a.tar.gz", "s3://in/b", "s3://in/folder/", "s3://in/llm/", "s3://in/m.tar.gz",
    ]  # fmt: skip
    assert set(buckets_in(document)) == {"in", "out", "secret"}


def test_the_old_endpoint_is_left_once_nothing_is_under_way() -> None:
    left, clock = [3.0, 0.4, 0.0], iter(range(100))
    wait_until_unused(lambda: left.pop(0), lambda _: None, lambda: float(next(clock)))
    assert left == []
    with pytest.raises(TerminalError, match="past the router"):
        wait_until_unused(lambda: 1.0, lambda _: None, lambda: float(next(clock)) * 100)
