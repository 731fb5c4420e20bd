"""A transform job: sends all objects below a prefix through a model, on separate instances.

Source: CreateTransformJob in the SageMaker API reference.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from hostelry.domain.hidden_endpoint import HiddenKind
from hostelry.domain.model import Model
from hostelry.domain.scope import Scope

VARIANT_NAME = "AllTraffic"
WHOLE = "$"


class TransformJobStatus(Enum):
    """TransformJobStatus as DescribeTransformJob shows it."""

    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


class TransformInputKind(Enum):
    """S3DataType: the kind of the input's URI."""

    PREFIX = "S3Prefix"
    MANIFEST = "ManifestFile"


class SplitType(Enum):
    """How an object is split into records. With NONE the object is one record."""

    NONE = "None"
    LINE = "Line"
    RECORD_IO = "RecordIO"
    TF_RECORD = "TFRecord"


class AssembleWith(Enum):
    """Separator of answers in an output object."""

    NONE = "None"
    LINE = "Line"


class BatchStrategy(Enum):
    """Number of records in a request."""

    MULTI_RECORD = "MultiRecord"  # as many as fit
    SINGLE_RECORD = "SingleRecord"

    @property
    def variable(self) -> str:
        """The value of SAGEMAKER_BATCH_STRATEGY."""
        return "MULTI_RECORD" if self is BatchStrategy.MULTI_RECORD else "SINGLE_RECORD"


class TransformInput(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of a job. `uri` is ``s3://bucket/prefix``, or the URI of the manifest."""

    kind: TransformInputKind
    uri: str
    content_type: str | None = None
    is_gzip: bool = False
    split_type: SplitType = SplitType.NONE


class TransformOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The place of answers: below `path` (no trailing slash), one object per input object."""

    path: str
    accept: str | None = None
    assemble_with: AssembleWith = AssembleWith.NONE
    kms_key_id: str | None = None


class TransformProcessing(msgspec.Struct, frozen=True, kw_only=True):
    """DataProcessing: changes records before they are sent, and answers before they are stored.

    The filters are JSONPaths. `joins_input` joins each record with its answer.
    """

    input_filter: str = WHOLE
    output_filter: str = WHOLE
    joins_input: bool = False

    @property
    def changes_records(self) -> bool:
        """Whether records or answers are parsed instead of passed on unchanged."""
        return self != TransformProcessing()

    @property
    def changes_answers(self) -> bool:
        """Whether answers are parsed."""
        return self.joins_input or self.output_filter != WHOLE


class TransformCapture(msgspec.Struct, frozen=True, kw_only=True):
    """DataCaptureConfig of a job. Manifests of its inputs and outputs are written below `uri`."""

    uri: str
    kms_key_id: str | None = None
    adds_inference_id: bool = False


class TransformProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a job. Unknown totals are missing (None).

    `objects` includes `failed_objects`. Bytes are sizes of input objects. `trouble` says why the
    job waits, for example for the object store. None while the job works.
    """

    objects: int = 0
    objects_total: int | None = None
    failed_objects: int = 0
    records: int = 0
    bytes: int = 0
    bytes_total: int | None = None
    at: float | None = None  # time of the runner's report, in seconds since the epoch
    trouble: str | None = None


class TransformJob(msgspec.Struct, frozen=True, kw_only=True):
    """A transform job.

    `model` is a copy, so that the model may be deleted. If `strategy`, `max_concurrent` or
    `max_payload_mb` is missing, the container chooses the value. A `max_payload_mb` of 0 means no
    limit. `started_at` is when the job's endpoint first served. `unserved_since` is when its last
    copy stopped serving. `deadline_at` is when the current status fails, or None if it is final. If
    an object's event started the job (`domain/object_event.py`), `chain_length` is the number of
    jobs in the chain, including this job, else 0.
    """

    scope: Scope
    name: str
    arn: str
    created_at: float
    modified_at: float
    status: TransformJobStatus
    model: Model
    instance_type: str
    instance_count: int
    input: TransformInput
    output: TransformOutput
    processing: TransformProcessing = TransformProcessing()
    capture: TransformCapture | None = None
    strategy: BatchStrategy | None = None
    max_concurrent: int | None = None
    max_payload_mb: int | None = None
    invocation_timeout_s: float = 600.0
    max_retries: int = 3
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    started_at: float | None = None
    ended_at: float | None = None
    unserved_since: float | None = None
    deadline_at: float | None = None
    failure_reason: str | None = None
    progress: TransformProgress = TransformProgress()
    chain_length: int = 0
    given: Mapping[str, Any]

    @property
    def endpoint_name(self) -> str:
        """The name of its hidden endpoint."""
        return HiddenKind.TRANSFORM.value + self.name

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.status not in (TransformJobStatus.IN_PROGRESS, TransformJobStatus.STOPPING)


class TransformSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs to run, without their progress. `version` is a digest of them."""

    version: str
    jobs: tuple[TransformJob, ...]


class TransformProgressReport(msgspec.Struct, frozen=True, kw_only=True):
    """The runner's report on a running job."""

    scope: Scope
    name: str
    progress: TransformProgress


class TransformEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The runner's report of the end of a job. `reason` says why it failed."""

    scope: Scope
    name: str
    status: TransformJobStatus
    reason: str | None = None
    progress: TransformProgress | None = None
