"""A transform job for tests."""

from hostelry.domain.model import Model
from hostelry.domain.scope import Scope
from hostelry.domain.transform_job import (
    TransformInput,
    TransformInputKind,
    TransformJob,
    TransformJobStatus,
    TransformOutput,
)

SCOPE = Scope("111122223333", "us-west-2")
MODEL = Model(scope=SCOPE, name="linear", arn="arn:model", created_at=0.0, containers=(), given={})
JOB = TransformJob(
    scope=SCOPE,
    name="nightly",
    arn="arn:aws:sagemaker:us-west-2:111122223333:transform-job/nightly",
    created_at=1000.0,
    modified_at=1000.0,
    status=TransformJobStatus.IN_PROGRESS,
    model=MODEL,
    instance_type="ml.m5.large",
    instance_count=1,
    input=TransformInput(kind=TransformInputKind.PREFIX, uri="s3://b/in", content_type="text/csv"),
    output=TransformOutput(path="s3://b/out"),
    given={},
)
