"""Repositories: names under which programs build and look up images.

No registry stands behind them: model servers run images that Podman or Docker on this machine has.
"""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens, page_of
from hostelry.api.refusals import refuse_fields
from hostelry.api.tags import read_tags, tag_list, tags_of, tags_without, write_tags
from hostelry.base.errors import ServiceError
from hostelry.domain.repository import Repository
from hostelry.store.records import Versioned

MAX_PAGE_SIZE = 100
UNSUPPORTED = ("imageTagMutabilityExclusionFilters", "encryptionConfiguration")


def create_repository(context: CallContext, params: Params) -> Result:
    """CreateRepository; raises RepositoryAlreadyExistsException."""
    check_registry(context, params)
    refuse_fields(params, UNSUPPORTED)
    name = params["repositoryName"]
    if context.state.repositories.get(context.scope, name) is not None:
        raise ServiceError(
            "RepositoryAlreadyExistsException",
            f"The repository with name '{name}' already exists in the registry with id"
            f" '{context.scope.account}'",
        )
    tags = tags_of(params.get("tags"))
    scanning = params.get("imageScanningConfiguration") or {}
    made = Repository(
        scope=context.scope,
        name=name,
        created_at=context.now,
        mutability=params.get("imageTagMutability") or "MUTABLE",
        scan_on_push=bool(scanning.get("scanOnPush")),
    )
    write_tags(context, made.arn, tags)
    context.state.repositories.put(context.scope, name, made, expect=None)
    return {"repository": described(made)}


def describe_repositories(context: CallContext, params: Params) -> Result:
    """DescribeRepositories; raises RepositoryNotFoundException for a name that is asked for."""
    check_registry(context, params)
    names = params.get("repositoryNames")
    if names:
        return {"repositories": [described(found(context, name).value) for name in names]}
    rows = [
        ((stored.value.name, stored.value.name), described(stored.value))
        for stored in context.state.repositories.list(context.scope)
    ]
    given = {"NextToken": params.get("nextToken")}
    tokens = PageTokens(context, "DescribeRepositories", given, "InvalidParameterException")
    page, following = page_of(tokens, rows, params.get("maxResults") or MAX_PAGE_SIZE)
    further = {"nextToken": following["NextToken"]} if following else {}
    return {"repositories": page, **further}


def delete_repository(context: CallContext, params: Params) -> Result:
    """DeleteRepository: forgets the name; images on this machine stay."""
    check_registry(context, params)
    stored = found(context, params["repositoryName"])
    write_tags(context, stored.value.arn, {})
    context.state.repositories.delete(context.scope, stored.value.name, expect=stored.version)
    return {"repository": described(stored.value)}


def list_tags_for_resource(context: CallContext, params: Params) -> Result:
    """ListTagsForResource."""
    return {"tags": tag_list(read_tags(context, existing_arn(context, params["resourceArn"])))}


def tag_resource(context: CallContext, params: Params) -> Result:
    """TagResource: adds or overwrites."""
    arn = existing_arn(context, params["resourceArn"])
    write_tags(context, arn, {**read_tags(context, arn), **tags_of(params["tags"])})
    return {}


def untag_resource(context: CallContext, params: Params) -> Result:
    """UntagResource: keys that the repository does not have are no error."""
    arn = existing_arn(context, params["resourceArn"])
    write_tags(context, arn, tags_without(context, arn, params["tagKeys"]))
    return {}


def existing_arn(context: CallContext, arn: str) -> str:
    """`arn`, which is a repository's; raises RepositoryNotFoundException."""
    name = arn.partition(":repository/")[2]
    if found(context, name).value.arn != arn:
        raise missing(context, arn)
    return arn


def found(context: CallContext, name: str) -> Versioned[Repository]:
    """The repository of that name; raises RepositoryNotFoundException."""
    stored = context.state.repositories.get(context.scope, name)
    if stored is None:
        raise missing(context, name)
    return stored


def missing(context: CallContext, name: str) -> ServiceError:
    """The error for a name that no repository has."""
    return ServiceError(
        "RepositoryNotFoundException",
        f"The repository with name '{name}' does not exist in the registry with id"
        f" '{context.scope.account}'",
    )


def check_registry(context: CallContext, params: Params) -> None:
    """Raise RepositoryNotFoundException for the registry of another account."""
    registry = params.get("registryId") or context.scope.account
    if registry != context.scope.account:
        raise ServiceError(
            "RepositoryNotFoundException",
            f"There is no registry with id '{registry}': this Hostelry has account"
            f" {context.scope.account} only.",
        )


def described(repository: Repository) -> Result:
    """The repository in AWS's form."""
    return {
        "repositoryArn": repository.arn,
        "registryId": repository.scope.account,
        "repositoryName": repository.name,
        "repositoryUri": repository.uri,
        "createdAt": repository.created_at,
        "imageTagMutability": repository.mutability,
        "imageScanningConfiguration": {"scanOnPush": repository.scan_on_push},
        "encryptionConfiguration": {"encryptionType": "AES256"},
    }
