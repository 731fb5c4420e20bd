"""The table of principals follows the records, and control resolves callers by them."""

import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.api.iam.aws_policies import aws_policies
from hostelry.aws.sigv4 import Identity
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.control.principal_routes import PrincipalBoard
from hostelry.domain.principal import (
    BUCKET_SCOPE,
    AccessKey,
    Account,
    BucketClaim,
    BucketOwner,
    OpenAiKey,
    User,
)
from hostelry.domain.scope import Scope, TagSet
from hostelry.principals.records import build_table, find_caller
from hostelry.principals.table import PrincipalTable
from hostelry.store.memory import MemoryStore
from hostelry.store.records import State, open_state

OWNER, OTHER = "111122223333", "444455556666"
WIDE = Scope(OTHER, "aws-global")
FULL = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
ACCOUNT = Account(
    id=OTHER, name="team", created_at=1.0, access_keys=(AccessKey(id="AKIAROOT", created_at=1.0),)
)
USER = User(
    account=OTHER,
    name="Ann",
    id="AIDAANN",
    created_at=1.0,
    attached_policies=(FULL,),
    access_keys=(
        AccessKey(id="AKIAANN", created_at=1.0),
        AccessKey(id="AKIAOFF", created_at=1.0, is_active=False),
    ),
    openai_keys=(OpenAiKey(id="key-1", digest="d1", created_at=1.0, models=("m",)),),
)


def stored(account: Account = ACCOUNT, user: User | None = USER) -> State:
    state = open_state(MemoryStore())
    state.accounts.put(WIDE, OTHER, account, expect=None)
    if user is not None:
        state.users.put(WIDE, "ann", user, expect=None)
    return state


def table_of(state: State) -> PrincipalTable:
    return build_table(state, aws_policies().values())


def test_a_table_has_active_keys_alone() -> None:
    table = table_of(stored())
    assert set(table.access_keys) == {"AKIAROOT", "AKIAANN"}
    assert table.access_keys["AKIAANN"].user_name == "ann"
    assert table.openai_keys["d1"].models == ("m",)
    assert table.accounts == {OTHER}
    assert table.users[f"{OTHER}/ann"].policies == (FULL,)
    assert FULL in table.policies


def test_a_closed_account_has_no_keys() -> None:
    table = table_of(stored(replace(ACCOUNT, is_closed=True)))
    assert not table.access_keys
    assert not table.openai_keys
    assert not table.accounts


def test_equal_content_has_an_equal_version() -> None:
    assert table_of(stored()).version == table_of(stored()).version
    assert table_of(stored()).version != table_of(stored(user=None)).version


def test_tags_of_endpoints_are_sent() -> None:
    arn = f"arn:aws:sagemaker:us-west-2:{OTHER}:endpoint/e"
    state = stored()
    for tagged in (arn, arn.replace("endpoint", "model")):
        tags = TagSet(scope=Scope(OTHER, "us-west-2"), arn=tagged, tags={"team": "red"})
        state.tags.put(tags.scope, tagged, tags, expect=None)
    assert table_of(state).tags == {arn: {"team": "red"}}


def signer(key: str, user: str = "") -> Identity:
    return Identity(
        access_key_id=key, account_id=OTHER, region="us-west-2", service="iam", user=user
    )


@cases(
    "identity, state, arn",
    case("the root of an account", signer("AKIAROOT"), stored(), f"arn:aws:iam::{OTHER}:root"),
    case("a user", signer("AKIAANN", "ann"), stored(), USER.arn),
    case("a disabled key", signer("AKIAOFF", "ann"), stored(), None),
    case("a deleted user", signer("AKIAANN", "ann"), stored(user=None), None),
    case("a closed account", signer("AKIAROOT"), stored(replace(ACCOUNT, is_closed=True)), None),
)
def test_control_resolves_callers_by_the_records_of_the_moment(
    identity: Identity, state: State, arn: str | None
) -> None:
    if arn is None:
        with pytest.raises(ServiceError):
            find_caller(state, aws_policies(), OWNER, identity)
        return
    caller = find_caller(state, aws_policies(), OWNER, identity)
    assert caller.arn == arn
    assert [it.id for it in caller.grants.identity] == (
        ["AmazonSageMakerFullAccess"] if identity.user else []
    )


def test_the_board_publishes_what_changes_for_callers_alone() -> None:
    state = stored()
    board = PrincipalBoard(state, OWNER, ManualClock())
    first = board.take_changes()
    assert first is not None
    state.users.put(WIDE, "ann", replace(USER, access_keys=()), expect=state_version(state))
    second = board.take_changes()
    assert second is not None
    assert "AKIAANN" not in second.access_keys


def state_version(state: State) -> int:
    found = state.users.get(WIDE, "ann")
    assert found is not None
    return found.version


@cases(
    "owner, claim, is_done, left",
    case("a new bucket", None, True, True, OTHER),
    case("the same bucket again", OTHER, True, True, OTHER),
    case("a bucket of another account", "999999999999", True, False, "999999999999"),
    case("a deleted bucket", OTHER, False, True, None),
    case("a deleted bucket of another account", "999999999999", False, False, "999999999999"),
    case("a deleted bucket that is unknown", None, False, True, None),
)
def test_a_bucket_belongs_to_the_account_that_claimed_it_first(
    owner: str | None, claim: bool, is_done: bool, left: str | None
) -> None:
    state = stored()
    if owner is not None:
        held = BucketOwner(name="b", account=owner, created_at=1.0)
        state.buckets.put(BUCKET_SCOPE, "b", held, expect=None)
    board = PrincipalBoard(state, OWNER, ManualClock())
    asked = BucketClaim(bucket="b", account=OTHER, is_claimed=claim)
    assert board._claim(asked) is is_done
    found = state.buckets.get(BUCKET_SCOPE, "b")
    assert (None if found is None else found.value.account) == left
