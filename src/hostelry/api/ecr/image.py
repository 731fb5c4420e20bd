"""Images of repositories: a repository holds none, and nothing can be pushed to it."""

from collections.abc import Mapping
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.ecr.repository import check_registry, found
from hostelry.base.errors import ServiceError

NOTHING_PUSHED = "No image can be pushed here: model servers run the images of this machine."


def list_images(context: CallContext, params: Params) -> Result:
    """ListImages: none."""
    check_registry(context, params)
    found(context, params["repositoryName"])
    return {"imageIds": []}


def describe_images(context: CallContext, params: Params) -> Result:
    """DescribeImages: none; raises ImageNotFoundException for an image that is asked for."""
    check_registry(context, params)
    repository = found(context, params["repositoryName"]).value
    for image in params.get("imageIds") or ():
        raise ServiceError(
            "ImageNotFoundException",
            f"The image with imageId {words(image)} does not exist within the repository with name"
            f" '{repository.name}' in the registry with id '{context.scope.account}'",
        )
    return {"imageDetails": []}


def batch_get_image(context: CallContext, params: Params) -> Result:
    """BatchGetImage: each image is a failure, ImageNotFound."""
    check_registry(context, params)
    found(context, params["repositoryName"])
    why = {"failureCode": "ImageNotFound", "failureReason": NOTHING_PUSHED}
    failures = [{"imageId": dict(it), **why} for it in params["imageIds"]]
    return {"images": [], "failures": failures}


def words(image: Mapping[str, Any]) -> str:
    """An image id as ECR's errors print it."""
    digest, tag = image.get("imageDigest", "null"), image.get("imageTag", "null")
    return f"{{imageDigest:'{digest}', imageTag:'{tag}'}}"
