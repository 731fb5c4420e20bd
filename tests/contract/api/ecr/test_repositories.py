"""ECR's repositories: names that are stored, and images that are not there."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError


def test_a_repository_lives_from_create_to_delete(api: Api) -> None:
    made = api.call(
        "CreateRepository", "ecr", repositoryName="team/echo", tags=[{"Key": "a", "Value": "1"}]
    )["repository"]
    registry = f"{api.scope.account}.dkr.ecr.{api.scope.region}.amazonaws.com"
    assert made["repositoryUri"] == f"{registry}/team/echo"
    assert api.call("DescribeRepositories", "ecr", repositoryNames=["team/echo"]) == {
        "repositories": [made]
    }
    arn = made["repositoryArn"]
    api.call("TagResource", "ecr", resourceArn=arn, tags=[{"Key": "b", "Value": "2"}])
    api.call("UntagResource", "ecr", resourceArn=arn, tagKeys=["a"])
    tags = api.call("ListTagsForResource", "ecr", resourceArn=arn)["tags"]
    assert tags == [{"Key": "b", "Value": "2"}]
    with pytest.raises(ServiceError, match="imageTag:'latest'"):
        api.call(
            "DescribeImages", "ecr", repositoryName="team/echo", imageIds=[{"imageTag": "latest"}]
        )
    wanted = [{"imageTag": "latest"}]
    answer = api.call("BatchGetImage", "ecr", repositoryName="team/echo", imageIds=wanted)
    assert [it["failureCode"] for it in answer["failures"]] == ["ImageNotFound"]
    assert api.call("DeleteRepository", "ecr", repositoryName="team/echo")["repository"] == made
    assert api.call("DescribeRepositories", "ecr") == {"repositories": []}


def test_pages_hold_every_repository_once(api: Api) -> None:
    for number in range(7):
        api.call("CreateRepository", "ecr", repositoryName=f"r{number}")
    first = api.call("DescribeRepositories", "ecr", maxResults=4)
    second = api.call("DescribeRepositories", "ecr", maxResults=4, nextToken=first["nextToken"])
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
    api: Api, operation: str, params: dict[str, Any], code: str, text: str
) -> None:
    api.call("CreateRepository", "ecr", repositoryName="here")
    with pytest.raises(ServiceError) as refused:
        api.call(operation, "ecr", **params)
    assert refused.value.code == code
    assert text in refused.value.message
