"""ECR's operations by name."""

from collections.abc import Mapping

from hostelry.api.context import Operation
from hostelry.api.ecr import image, repository

OPERATIONS: Mapping[str, Operation] = {
    "CreateRepository": repository.create_repository,
    "DescribeRepositories": repository.describe_repositories,
    "DeleteRepository": repository.delete_repository,
    "TagResource": repository.tag_resource,
    "UntagResource": repository.untag_resource,
    "ListTagsForResource": repository.list_tags_for_resource,
    "ListImages": image.list_images,
    "DescribeImages": image.describe_images,
    "BatchGetImage": image.batch_get_image,
}
