"""ECR's repositories: names that are stored, and images that are not there."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.errors import ServiceError
from hostelry.domain.scope import Scope

Call = Callable[..., dict[str, Any]]


def test_a_repository_lives_from_create_to_delete(call: Call, scope: Scope) -> None:
    made = call(
        "CreateRepository", "ecr", repositoryName="team/echo", tags=[{"Key": "a", "Value": "1"}]
    )["repository"]
    registry = f"{scope.account}.dkr.ecr.{scope.region}.amazonaws.com"
    assert made["repositoryUri"] == f"{registry}/team/echo"
    assert call("DescribeRepositories", "ecr", repositoryNames=["team/echo"]) == {
        "repositories": [made]
    }
    arn = made["repositoryArn"]
    call("TagResource", "ecr", resourceArn=arn, tags=[{"Key": "b", "Value": "2"}])
    call("UntagResource", "ecr", resourceArn=arn, tagKeys=["a"])
    tags = call("ListTagsForResource", "ecr", resourceArn=arn)["tags"]
    assert tags == [{"Key": "b", "Value": "2"}]
    with pytest.raises(ServiceError, match="imageTag:'latest'"):
        call("DescribeImages", "ecr", repositoryName="team/echo", imageIds=[{"imageTag": "latest"}])
    wanted = [{"imageTag": "latest"}]
    answer = call("BatchGetImage", "ecr", repositoryName="team/echo", imageIds=wanted)
    assert [it["failureCode"] for it in answer["failures"]] == ["ImageNotFound"]
    assert call("DeleteRepository", "ecr", repositoryName="team/echo")["repository"] == made
    assert call("DescribeRepositories", "ecr") == {"repositories": []}


def test_pages_hold_every_repository_once(call: Call) -> None:
    for number in range(7):
        call("CreateRepository", "ecr", repositoryName=f"r{number}")
    first = call("DescribeRepositories", "ecr", maxResults=4)
    second = call("DescribeRepositories", "ecr", maxResults=4, nextToken=first["nextToken"])
    names = [it["repositoryName"] for it in (*first["repositories"], *second["repositories"])]
    assert names == [f"r{number}" for number in range(7)]
    assert "nextToken" not in second


NOT_FOUND = "RepositoryNotFoundException"


@cases(
    "operation, params, code, text",
    case(
        "a name twice",
        "CreateRepository",
        {"repositoryName": "here"},
        "RepositoryAlreadyExistsException",
        "'here' already exists",
    ),
    case("describe", "DescribeRepositories", {"repositoryNames": ["x1"]}, NOT_FOUND, "'x1'"),
    case("delete", "DeleteRepository", {"repositoryName": "x1"}, NOT_FOUND, "'x1'"),
    case("list images", "ListImages", {"repositoryName": "x1"}, NOT_FOUND, "'x1'"),
    case(
        "another account's registry",
        "ListImages",
        {"repositoryName": "here", "registryId": "999999999999"},
        NOT_FOUND,
        "999999999999",
    ),
    case(
        "an image",
        "DescribeImages",
        {"repositoryName": "here", "imageIds": [{"imageTag": "v1"}]},
        "ImageNotFoundException",
        "imageTag:'v1'",
    ),
    case("a log-in", "GetAuthorizationToken", {}, "UnknownOperationException", "no image registry"),
    case(
        "an ARN of something else",
        "ListTagsForResource",
        {"resourceArn": "arn:aws:ecr:us-west-2:111122223333:topic/here"},
        NOT_FOUND,
        "",
    ),
)
def test_what_is_not_there_is_refused_by_name(
    call: Call, operation: str, params: dict[str, Any], code: str, text: str
) -> None:
    call("CreateRepository", "ecr", repositoryName="here")
    with pytest.raises(ServiceError) as refused:
        call(operation, "ecr", **params)
    assert refused.value.code == code
    assert text in refused.value.message
