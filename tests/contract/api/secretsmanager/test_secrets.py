"""Secrets Manager: secrets, their versions and their deletion."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.api.rig import Api

from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.scope import Scope
from hostelry.store.records import State

Secrets = Callable[..., dict[str, Any]]
DAY_S = 86_400
FIRST, SECOND, THIRD = (f"{n:032d}" for n in range(3))
ABSENT = ("ResourceNotFoundException", "Secrets Manager can't find the specified secret.")


@pytest.fixture
def secrets(api: Api) -> Secrets:
    return lambda operation, **params: api.call(operation, "secretsmanager", **params)


@pytest.fixture
def fails(secrets: Secrets) -> Callable[..., tuple[str, str]]:
    def fails(operation: str, **params: Any) -> tuple[str, str]:
        with pytest.raises(ServiceError) as caught:
            secrets(operation, **params)
        return caught.value.code, caught.value.message

    return fails


@pytest.fixture
def token(secrets: Secrets) -> str:
    """The ARN of a secret with one value."""
    made = secrets("CreateSecret", Name="hub/token", SecretString="hf_1", ClientRequestToken=FIRST)
    assert made["VersionId"] == FIRST
    return str(made["ARN"])


@pytest.mark.parametrize("form", ["name", "arn", "arn without its suffix"])
def test_every_form_of_a_name_finds_the_value(secrets: Secrets, token: str, form: str) -> None:
    given = {"name": "hub/token", "arn": token, "arn without its suffix": token[:-7]}[form]
    got = secrets("GetSecretValue", SecretId=given)
    assert (got["SecretString"], got["VersionStages"]) == ("hf_1", ["AWSCURRENT"])
    assert got["ARN"] == token


def test_a_binary_value_stays_binary(secrets: Secrets) -> None:
    secrets("CreateSecret", Name="b", SecretBinary=b"\x00\xff")
    got = secrets("GetSecretValue", SecretId="b")
    assert got["SecretBinary"] == b"\x00\xff"
    assert "SecretString" not in got


def test_a_new_value_makes_the_last_one_previous(secrets: Secrets, token: str) -> None:
    for version, value in ((SECOND, "hf_2"), (THIRD, "hf_3")):
        secrets("PutSecretValue", SecretId=token, SecretString=value, ClientRequestToken=version)
    assert secrets("GetSecretValue", SecretId=token)["SecretString"] == "hf_3"
    previous = secrets("GetSecretValue", SecretId=token, VersionStage="AWSPREVIOUS")
    assert previous["SecretString"] == "hf_2"
    assert secrets("GetSecretValue", SecretId=token, VersionId=FIRST)["SecretString"] == "hf_1"
    stages = secrets("DescribeSecret", SecretId=token)["VersionIdsToStages"]
    assert stages == {THIRD: ["AWSCURRENT"], SECOND: ["AWSPREVIOUS"]}
    listed = secrets("ListSecretVersionIds", SecretId=token)["Versions"]
    assert {it["VersionId"] for it in listed} == {SECOND, THIRD}
    every = secrets("ListSecretVersionIds", SecretId=token, IncludeDeprecated=True)["Versions"]
    assert {it["VersionId"] for it in every} == {FIRST, SECOND, THIRD}


def test_a_label_of_ones_own_leaves_the_current_value(secrets: Secrets, token: str) -> None:
    secrets("PutSecretValue", SecretId=token, SecretString="next", VersionStages=["PENDING"])
    assert secrets("GetSecretValue", SecretId=token)["SecretString"] == "hf_1"
    pending = secrets("GetSecretValue", SecretId=token, VersionStage="PENDING")
    assert pending["SecretString"] == "next"


def test_versions_without_a_label_are_bounded(
    secrets: Secrets, token: str, state: State, scope: Scope
) -> None:
    for number in range(40):
        secrets("PutSecretValue", SecretId=token, SecretString=str(number))
    found = state.secrets.get(scope, "hub/token")
    assert found is not None
    assert len(found.value.versions) == 20 + 2


def test_a_repeated_request_adds_no_version(
    secrets: Secrets, token: str, fails: Callable[..., tuple[str, str]]
) -> None:
    again = {"SecretId": token, "ClientRequestToken": SECOND}
    first = secrets("PutSecretValue", SecretString="x", **again)
    assert secrets("PutSecretValue", SecretString="x", **again) == first
    assert fails("PutSecretValue", SecretString="y", **again)[0] == "ResourceExistsException"
    made = {"Name": "hub/token", "SecretString": "hf_1", "ClientRequestToken": FIRST}
    assert secrets("CreateSecret", **made)["ARN"] == token
    assert fails("CreateSecret", Name="hub/token", SecretString="z") == (
        "ResourceExistsException",
        "The operation failed because the secret hub/token already exists.",
    )


def test_what_is_not_there(
    secrets: Secrets, token: str, fails: Callable[..., tuple[str, str]]
) -> None:
    assert fails("GetSecretValue", SecretId="no") == ABSENT
    assert fails("DescribeSecret", SecretId=token[:-1]) == ABSENT
    text = "Secrets Manager can't find the specified secret value for staging label: AWSPREVIOUS"
    asked = fails("GetSecretValue", SecretId=token, VersionStage="AWSPREVIOUS")
    assert asked == ("ResourceNotFoundException", text)
    secrets("CreateSecret", Name="empty")
    assert fails("GetSecretValue", SecretId="empty")[1].endswith("staging label: AWSCURRENT")


def test_a_deleted_secret_can_be_restored_until_its_window_is_over(
    secrets: Secrets, token: str, fails: Callable[..., tuple[str, str]], clock: ManualClock
) -> None:
    answer = secrets("DeleteSecret", SecretId=token, RecoveryWindowInDays=7)
    assert answer["DeletionDate"] == clock.now() + 7 * DAY_S
    marked = "because it was marked for deletion."
    assert fails("GetSecretValue", SecretId=token)[1].endswith(marked)
    assert fails("CreateSecret", Name="hub/token")[1].endswith("already scheduled for deletion.")
    assert secrets("ListSecrets")["SecretList"] == []
    planned = secrets("ListSecrets", IncludePlannedDeletion=True)["SecretList"]
    assert planned[0]["DeletedDate"] == clock.now()
    secrets("RestoreSecret", SecretId=token)
    assert secrets("GetSecretValue", SecretId=token)["SecretString"] == "hf_1"
    secrets("DeleteSecret", SecretId=token)
    clock.advance(30 * DAY_S)
    assert fails("RestoreSecret", SecretId=token) == ABSENT
    secrets("CreateSecret", Name="hub/token")


def test_a_forced_deletion_is_at_once(
    secrets: Secrets, token: str, fails: Callable[..., tuple[str, str]]
) -> None:
    secrets("DeleteSecret", SecretId=token, ForceDeleteWithoutRecovery=True)
    assert fails("DescribeSecret", SecretId=token) == ABSENT


@pytest.mark.parametrize(
    "params",
    [
        {"RecoveryWindowInDays": 6},
        {"RecoveryWindowInDays": 31},
        {"RecoveryWindowInDays": 7, "ForceDeleteWithoutRecovery": True},
    ],
    ids=str,
)
def test_a_window_that_is_none(
    token: str, fails: Callable[..., tuple[str, str]], params: dict[str, Any]
) -> None:
    assert fails("DeleteSecret", SecretId=token, **params)[0] == "InvalidParameterException"


def test_both_kinds_of_a_value_are_refused(fails: Callable[..., tuple[str, str]]) -> None:
    both = {"SecretString": "a", "SecretBinary": b"b"}
    assert fails("CreateSecret", Name="n", **both)[0] == "InvalidParameterException"


def test_values_are_stored_encrypted_and_need_their_key(
    secrets: Secrets, api: Api, fails: Callable[..., tuple[str, str]]
) -> None:
    key = api.call("CreateKey", "kms")["KeyMetadata"]["KeyId"]
    secrets("CreateSecret", Name="n", SecretString="very secret", KmsKeyId=key)
    found = api.state.secrets.get(api.scope, "n")
    assert found is not None
    assert "very secret" not in repr(found.value)
    api.call("DisableKey", "kms", KeyId=key)
    assert fails("GetSecretValue", SecretId="n")[0] == "DecryptionFailure"
    assert fails("PutSecretValue", SecretId="n", SecretString="m")[0] == "EncryptionFailure"
    assert fails("CreateSecret", Name="o", KmsKeyId="alias/no")[0] == "NotFoundException"


def test_secrets_are_listed_filtered_and_tagged(secrets: Secrets, token: str) -> None:
    tags = [{"Key": "team", "Value": "llm"}]
    secrets("CreateSecret", Name="db/password", Description="the database", Tags=tags)
    names = {it["Name"] for it in secrets("ListSecrets")["SecretList"]}
    assert names == {"hub/token", "db/password"}
    for key, value in (("name", "db/"), ("tag-key", "team"), ("all", "the da"), ("name", "!hub")):
        filters = [{"Key": key, "Values": [value]}]
        listed = secrets("ListSecrets", Filters=filters)["SecretList"]
        assert [it["Name"] for it in listed] == ["db/password"], key
    secrets("TagResource", SecretId="db/password", Tags=[{"Key": "a", "Value": "b"}])
    secrets("UntagResource", SecretId="db/password", TagKeys=["team"])
    found = secrets("DescribeSecret", SecretId="db/password")
    assert found["Tags"] == [{"Key": "a", "Value": "b"}]
    assert secrets("GetResourcePolicy", SecretId=token) == {"ARN": token, "Name": "hub/token"}


def test_an_update_changes_what_it_names(secrets: Secrets, token: str) -> None:
    secrets("UpdateSecret", SecretId=token, Description="new")
    assert secrets("DescribeSecret", SecretId=token)["Description"] == "new"
    secrets("UpdateSecret", SecretId=token, SecretString="hf_2")
    assert secrets("GetSecretValue", SecretId=token)["SecretString"] == "hf_2"
