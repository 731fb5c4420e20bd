"""The tag that names the model of a multi-model container which a transform job uses.

The requests of a transform job name no TargetModel. A job of one of many models runs it alone: its
archive is the container's only model, as if the container had Mode SingleModel.
"""

from collections.abc import Mapping
from dataclasses import replace

from hostelry.base.errors import validation_error
from hostelry.domain.model import ArtifactSource, Container, Model, SourceKind, is_target

TARGET_TAG = "hostelry:target-model"


def model_of_job(model: Model, tags: Mapping[str, str]) -> Model:
    """The model that a transform job with `tags` runs, each container of one model."""
    target = tags.get(TARGET_TAG)
    many = [it for it in model.containers if it.is_multi_model]
    if not many:
        if target is not None:
            raise validation_error(
                f'Tag {TARGET_TAG} is "{target}", but model "{model.name}" has no multi-model'
                " container; leave the tag out."
            )
        return model
    if target is None:
        raise validation_error(
            f'Model "{model.name}" is a multi-model container (Mode MultiModel); name the model'
            f' that the job shall use, as the tag {TARGET_TAG} of the job, such as "m1.tar.gz".'
        )
    if not is_target(target):
        raise validation_error(
            f'Tag {TARGET_TAG} is "{target}"; it must be a path below {many[0].models_uri}, with'
            " no empty parts and no dots alone."
        )
    return replace(model, containers=tuple(_with_one(it, target) for it in model.containers))


def _with_one(container: Container, target: str) -> Container:
    if not container.is_multi_model:
        return container
    source = ArtifactSource(uri=container.models_uri + target, kind=SourceKind.ARCHIVE)
    return replace(container, source=source)
