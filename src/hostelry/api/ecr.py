"""ECR: repositories, which are only names for programs that build and look up images.

Model servers run the images that Podman or Docker on this machine has, and the platform runs no
registry. So every repository is empty, and nothing can be pushed.
"""

from collections.abc import Mapping
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens, get_page, order_by_name
from hostelry.api.record_kind import RecordKind
from hostelry.api.refusals import refuse_fields
from hostelry.api.tags import TagOperations, parse_tags, write_tags
from hostelry.base.errors import ServiceError
from hostelry.domain.model import Repository

MAX_PAGE_SIZE = 100
UNSUPPORTED = ("imageTagMutabilityExclusionFilters", "encryptionConfiguration")
NOTHING_PUSHED = "No image can be pushed here: model servers run the images of this machine."


def _not_found(context: CallContext, name: str) -> ServiceError:
    return ServiceError(
        "RepositoryNotFoundException",
        f"The repository with name '{name}' does not exist in the registry with id"
        f" '{context.scope.account}'",
    )


REPOSITORIES = RecordKind[Repository](
    records=lambda state: state.repositories, not_found=_not_found
)


def create_repository(context: CallContext, params: Params) -> Result:
    """CreateRepository. Raises RepositoryAlreadyExistsException."""
    _check_registry(context, params)
    refuse_fields(params, UNSUPPORTED)
    name = params["repositoryName"]
    if REPOSITORIES.get(context, name) is not None:
        raise ServiceError(
            "RepositoryAlreadyExistsException",
            f"The repository with name '{name}' already exists in the registry with id"
            f" '{context.scope.account}'",
        )
    tags = parse_tags(params.get("tags"))
    scanning = params.get("imageScanningConfiguration") or {}
    repository = Repository(
        scope=context.scope,
        name=name,
        created_at=context.now,
        mutability=params.get("imageTagMutability") or "MUTABLE",
        scan_on_push=bool(scanning.get("scanOnPush")),
    )
    write_tags(context, repository.arn, tags)
    return {"repository": _describe(REPOSITORIES.put(context, repository))}


def describe_repositories(context: CallContext, params: Params) -> Result:
    """DescribeRepositories. Raises RepositoryNotFoundException for a requested name."""
    _check_registry(context, params)
    names = params.get("repositoryNames")
    if names:
        found = [REPOSITORIES.find(context, name).value for name in names]
        return {"repositories": [_describe(it) for it in found]}
    rows = order_by_name((it.name, _describe(it)) for it in REPOSITORIES.values(context))
    given = {"NextToken": params.get("nextToken")}
    tokens = PageTokens(context, "DescribeRepositories", given, "InvalidParameterException")
    page, following = get_page(tokens, rows, params.get("maxResults") or MAX_PAGE_SIZE)
    further = {"nextToken": following["NextToken"]} if following else {}
    return {"repositories": page, **further}


def delete_repository(context: CallContext, params: Params) -> Result:
    """DeleteRepository: forgets the name. Images on this machine stay."""
    _check_registry(context, params)
    stored = REPOSITORIES.find(context, params["repositoryName"])
    write_tags(context, stored.value.arn, {})
    REPOSITORIES.delete(context, stored)
    return {"repository": _describe(stored.value)}


def list_images(context: CallContext, params: Params) -> Result:
    """ListImages: always empty."""
    _check_registry(context, params)
    REPOSITORIES.find(context, params["repositoryName"])
    return {"imageIds": []}


def describe_images(context: CallContext, params: Params) -> Result:
    """DescribeImages: always empty. Raises ImageNotFoundException for a requested image."""
    _check_registry(context, params)
    repository = REPOSITORIES.find(context, params["repositoryName"]).value
    for image in params.get("imageIds") or ():
        raise ServiceError(
            "ImageNotFoundException",
            f"The image with imageId {_print_image_id(image)} does not exist within the repository"
            f" with name '{repository.name}' in the registry with id '{context.scope.account}'",
        )
    return {"imageDetails": []}


def batch_get_image(context: CallContext, params: Params) -> Result:
    """BatchGetImage: each image is a failure, ImageNotFound."""
    _check_registry(context, params)
    REPOSITORIES.find(context, params["repositoryName"])
    why = {"failureCode": "ImageNotFound", "failureReason": NOTHING_PUSHED}
    failures = [{"imageId": dict(it), **why} for it in params["imageIds"]]
    return {"images": [], "failures": failures}


def _find_tagged(context: CallContext, params: Params) -> str:
    arn: str = params["resourceArn"]
    name = arn.partition(":repository/")[2]
    if REPOSITORIES.find(context, name).value.arn != arn:
        raise _not_found(context, arn)
    return arn


TAGS = TagOperations(find_arn=_find_tagged, tags="tags", keys="tagKeys")


def _check_registry(context: CallContext, params: Params) -> None:
    registry = params.get("registryId") or context.scope.account
    if registry != context.scope.account:
        raise ServiceError(
            "RepositoryNotFoundException",
            f"There is no registry with id '{registry}': this Hostelry has account"
            f" {context.scope.account} only.",
        )


def _describe(repository: Repository) -> Result:
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


def _print_image_id(image: Mapping[str, Any]) -> str:
    digest, tag = image.get("imageDigest", "null"), image.get("imageTag", "null")
    return f"{{imageDigest:'{digest}', imageTag:'{tag}'}}"
