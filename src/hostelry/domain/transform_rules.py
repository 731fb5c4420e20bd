"""Rules of transform jobs beyond the service model. Each check raises a ValidationException.

Source: CreateTransformJob, and "Associate Prediction Results with Input Records" in the SageMaker
developer guide.
"""

import re

from hostelry.base.errors import validation_error
from hostelry.domain.transform_job import (
    AssembleWith,
    SplitType,
    TransformJob,
    TransformProcessing,
)
from hostelry.domain.validation import check_limit

MAX_INSTANCES = 100
MAX_PAYLOAD_MB = 100
MAX_MB_IN_FLIGHT = 100  # on one instance: payload size times concurrent requests

CSV = "text/csv"
RECORD_TYPES = (CSV, "application/json", "application/jsonlines")

NAME = r"[^\s.,*\[\]'\"?()@$]+"
INDEX = r"-?\d{1,9}"
END = rf":\s*(?:{INDEX}\s*)?"
ELEMENTS = rf"\s*(?:{INDEX}\s*(?:{END})?|{END})"
STEP = (
    rf"\.{NAME}|\.\*|\[\*\]"
    r"|\['[^']+'(?:\s*,\s*'[^']+')*\]"
    rf"|\[{ELEMENTS}(?:,{ELEMENTS})*\]"
)
JSON_PATH = re.compile(rf"\$(?:{STEP})*")
CSV_PATH = re.compile(r"\$(?:\[[^'\[\]]*\])?")


def check_transform(job: TransformJob) -> None:
    """Refuse a job that is impossible as requested."""
    check_limit("TransformResources.InstanceCount", job.instance_count, MAX_INSTANCES)
    check_payload(job.max_payload_mb, job.max_concurrent)
    check_processing(job)
    check_capture(job)


def check_payload(max_payload_mb: int | None, max_concurrent: int | None) -> None:
    """Refuse payloads above 100 MB, and more than 100 MB in flight on an instance."""
    if max_payload_mb is None:
        return
    if max_payload_mb > MAX_PAYLOAD_MB:
        raise validation_error(
            f"MaxPayloadInMB is {max_payload_mb}; at most {MAX_PAYLOAD_MB} is possible."
        )
    if max_payload_mb * (max_concurrent or 1) > MAX_MB_IN_FLIGHT:
        raise validation_error(
            f"MaxConcurrentTransforms {max_concurrent} times MaxPayloadInMB {max_payload_mb} is"
            f" {max_payload_mb * (max_concurrent or 1)} MB; the product must not exceed"
            f" {MAX_MB_IN_FLIGHT} MB."
        )


def check_processing(job: TransformJob) -> None:
    """Refuse filters and joins that the records of the job do not allow."""
    processing = job.processing
    if not processing.changes_records:
        return
    content_type = check_record_type("TransformInput.ContentType", job.input.content_type)
    check_paths(processing, is_csv=content_type == CSV)
    check_split(job)
    if not processing.changes_answers or job.output.accept is None:
        return
    accept = check_record_type("TransformOutput.Accept", job.output.accept)
    if accept != content_type:
        raise validation_error(
            f"TransformOutput.Accept is {accept} and TransformInput.ContentType {content_type};"
            " DataProcessing with JoinSource Input or an OutputFilter needs the same type for both."
        )


def check_record_type(field: str, given: str | None) -> str:
    """Return the media type without parameters. Refuses a type whose records cannot be parsed."""
    found = (given or "").partition(";")[0].strip().lower()
    if found not in RECORD_TYPES:
        raise validation_error(
            f"DataProcessing reads records of {', '.join(RECORD_TYPES)}; {field} is"
            f" {given or 'not given'}."
        )
    return found


def check_paths(processing: TransformProcessing, *, is_csv: bool) -> None:
    """Refuse filters that are not valid JSONPath, or that name members of a CSV row."""
    filters = {"InputFilter": processing.input_filter, "OutputFilter": processing.output_filter}
    for field, path in filters.items():
        if JSON_PATH.fullmatch(path) is None:
            raise validation_error(
                f'DataProcessing.{field} "{path}" is not a JSONPath that is read here: $, followed'
                " by .name, .*, ['a','b'], [n], [n,m] or [a:b]."
            )
        if is_csv and CSV_PATH.fullmatch(path) is None:
            raise validation_error(
                f'DataProcessing.{field} "{path}" names members, which a row of {CSV} does not'
                " have; give indexes, as in $[0], $[0,2] or $[1:]."
            )


def check_split(job: TransformJob) -> None:
    """Refuse a split without text records, and answers without a separator between them."""
    split, assemble = job.input.split_type, job.output.assemble_with
    if split not in (SplitType.NONE, SplitType.LINE):
        raise validation_error(
            f"TransformInput.SplitType {split.value} does not go with DataProcessing; give Line or"
            " None."
        )
    if job.processing.changes_answers and (split is SplitType.LINE) != (
        assemble is AssembleWith.LINE
    ):
        raise validation_error(
            f"TransformInput.SplitType is {split.value} and TransformOutput.AssembleWith"
            f" {assemble.value}; DataProcessing with JoinSource Input or an OutputFilter needs the"
            " same for both."
        )


def check_capture(job: TransformJob) -> None:
    """Refuse inference ids if answers have no place for them."""
    if job.capture is not None and job.capture.adds_inference_id:
        given = job.output.accept or job.input.content_type
        check_record_type("TransformOutput.Accept", given)
