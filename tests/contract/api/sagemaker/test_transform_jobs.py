"""Transform jobs: descriptions, meanings of requests, and refusals."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError
from hostelry.domain.model import ArtifactSource, SourceKind
from hostelry.domain.scope import Scope
from hostelry.domain.transform_job import (
    AssembleWith,
    BatchStrategy,
    SplitType,
    TransformCapture,
    TransformInput,
    TransformInputKind,
    TransformJob,
    TransformJobStatus,
    TransformOutput,
    TransformProcessing,
)
from hostelry.reconcile.transform_jobs import TransformJobs
from hostelry.store.records import State

ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
JOB: Mapping[str, Any] = {
    "TransformJobName": "Job-1",
    "ModelName": "m",
    "TransformInput": {
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://in/csv"}}
    },
    "TransformOutput": {"S3OutputPath": "s3://out/answers/"},
    "TransformResources": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 2},
}
CSV_INPUT = {"ContentType": "text/csv", "SplitType": "Line"}
CSV_OUTPUT = {"Accept": "text/csv", "AssembleWith": "Line"}
SOURCE = ("TransformInput", "DataSource", "S3DataSource")


def job_with(*changes: tuple[tuple[str, ...], Any]) -> dict[str, Any]:
    """JOB with the value at each path replaced, or, of a dictionary, extended."""
    params = copy.deepcopy(dict(JOB))
    for path, value in changes:
        at = params
        for step in path[:-1]:
            at = at.setdefault(step, {})
        old = at.get(path[-1])
        at[path[-1]] = {**old, **value} if isinstance(old, dict) else value
    return params


def processed(**processing: str) -> dict[str, Any]:
    """JOB over lines of CSV, with this DataProcessing."""
    return job_with(
        (("TransformInput",), CSV_INPUT),
        (("TransformOutput",), CSV_OUTPUT),
        (("DataProcessing",), processing),
    )


def tagged(target: str) -> dict[str, Any]:
    """The tag that names one of many models."""
    return {"Tags": [{"Key": "hostelry:target-model", "Value": target}]}


@pytest.fixture
def job(state: State, scope: Scope) -> Callable[[], TransformJob]:
    """The stored job."""

    def stored() -> TransformJob:
        found = state.transform_jobs.get(scope, "Job-1")
        assert found is not None
        return found.value

    return stored


def test_a_job_is_described_with_defaults(api: Api) -> None:
    api.make.model("m")
    created = api.call("CreateTransformJob", **JOB)
    assert created == {"TransformJobArn": ARN + "transform-job/job-1"}
    shown = api.call("DescribeTransformJob", TransformJobName="Job-1")
    source = JOB["TransformInput"]
    assert shown == {
        "TransformJobName": "Job-1",
        "TransformJobArn": ARN + "transform-job/job-1",
        "TransformJobStatus": "InProgress",
        "ModelName": "m",
        "CreationTime": api.clock.now(),
        "TransformInput": {**source, "CompressionType": "None", "SplitType": "None"},
        "TransformOutput": {"S3OutputPath": "s3://out/answers/", "AssembleWith": "None"},
        "TransformResources": JOB["TransformResources"],
        "DataProcessing": {"InputFilter": "$", "OutputFilter": "$", "JoinSource": "None"},
    }


def test_every_field_is_kept_and_described(api: Api, job: Callable[[], TransformJob]) -> None:
    # api.md 2.6
    api.make.model("m")
    more = {
        "MaxConcurrentTransforms": 4,
        "MaxPayloadInMB": 25,
        "BatchStrategy": "SingleRecord",
        "Environment": {"THREADS": "2"},
        "ModelClientConfig": {"InvocationsTimeoutInSeconds": 60, "InvocationsMaxRetries": 0},
        "DataCaptureConfig": {
            "DestinationS3Uri": "s3://seen/by/",
            "KmsKeyId": "key-2",
            "GenerateInferenceId": True,
        },
        "ExperimentConfig": {"ExperimentName": "e", "RunName": "r"},
    }
    params = {**processed(InputFilter="$[1:]", OutputFilter="$[0,-1]", JoinSource="Input"), **more}
    params["TransformInput"]["CompressionType"] = "Gzip"
    params["TransformOutput"]["KmsKeyId"] = "key"
    params["TransformResources"] |= {"VolumeKmsKeyId": "key", "TransformAmiVersion": "al2-v1"}
    api.call("CreateTransformJob", **params)

    shown = api.call("DescribeTransformJob", TransformJobName="Job-1")
    assert {name: shown[name] for name in params} == params
    found = job()
    assert found.input == TransformInput(
        kind=TransformInputKind.PREFIX,
        uri="s3://in/csv",
        content_type="text/csv",
        is_gzip=True,
        split_type=SplitType.LINE,
    )
    assert found.output == TransformOutput(
        path="s3://out/answers",
        accept="text/csv",
        assemble_with=AssembleWith.LINE,
        kms_key_id="key",
    )
    assert found.processing == TransformProcessing(
        input_filter="$[1:]", output_filter="$[0,-1]", joins_input=True
    )
    assert found.capture == TransformCapture(
        uri="s3://seen/by", kms_key_id="key-2", adds_inference_id=True
    )
    assert (found.strategy, found.max_concurrent, found.max_payload_mb) == (
        BatchStrategy.SINGLE_RECORD,
        4,
        25,
    )
    assert (found.invocation_timeout_s, found.max_retries) == (60.0, 0)
    assert (found.instance_type, found.instance_count) == ("ml.m5.xlarge", 2)
    assert found.environment == {"THREADS": "2"}
    assert found.model.name == "m"


def test_what_the_container_may_choose_is_left_open(
    api: Api, job: Callable[[], TransformJob]
) -> None:
    api.make.model("m")
    api.call("CreateTransformJob", **{**JOB, "MaxConcurrentTransforms": 0, "MaxPayloadInMB": 0})
    found = job()
    assert (found.strategy, found.max_concurrent) == (None, None)
    assert found.max_payload_mb == 0, "0 is a payload without a limit, not a default"
    assert (found.invocation_timeout_s, found.max_retries) == (600.0, 3)


@cases(
    "params, expected",
    case("100 instances", job_with((("TransformResources", "InstanceCount"), 100)), None),
    case("100 MB in flight", {**JOB, "MaxConcurrentTransforms": 4, "MaxPayloadInMB": 25}, None),
    case("a payload of 100 MB", {**JOB, "MaxPayloadInMB": 100}, None),
    case(
        "payloads without a limit",
        {**JOB, "MaxConcurrentTransforms": 50, "MaxPayloadInMB": 0},
        None,
    ),
    case(
        "a strategy for objects that are not split, as in AWS's image examples",
        {**JOB, "BatchStrategy": "SingleRecord"},
        None,
    ),
    case("101 MB", {**JOB, "MaxPayloadInMB": 101}, "MaxPayloadInMB is 101; at most 100"),
    case(
        "125 MB in flight",
        {**JOB, "MaxConcurrentTransforms": 5, "MaxPayloadInMB": 25},
        "MaxConcurrentTransforms 5 times MaxPayloadInMB 25 is 125 MB",
    ),
    case(
        "an augmented manifest",
        job_with((SOURCE, {"S3DataType": "AugmentedManifestFile"})),
        "S3DataType=AugmentedManifestFile is not supported",
    ),
    case(
        "conversations",
        job_with((SOURCE, {"S3DataType": "Converse"})),
        "S3DataType=Converse is not supported",
    ),
    case("a manifest of one object", job_with((SOURCE, {"S3DataType": "ManifestFile"})), None),
    case(
        "a manifest that is a folder",
        job_with((SOURCE, {"S3DataType": "ManifestFile", "S3Uri": "s3://in/prefix/"})),
        "must name the manifest, one object",
    ),
    case(
        "an input elsewhere on the web",
        job_with((SOURCE, {"S3Uri": "https://example.com/in"})),
        'S3Uri "https://example.com/in" is not supported',
    ),
    case("a whole bucket", job_with((SOURCE, {"S3Uri": "s3://in"})), None),
    case(
        "an output elsewhere on the web",
        job_with((("TransformOutput", "S3OutputPath"), "https://example.com/x")),
        "TransformOutput.S3OutputPath",
    ),
    case("the whole record", processed(InputFilter="$"), None),
    case(
        "a filter that is no JSONPath",
        processed(InputFilter="features"),
        'DataProcessing.InputFilter "features" is not a JSONPath',
    ),
    case("a recursive descent", processed(OutputFilter="$..deep"), "is not a JSONPath"),
    case(
        "a member of a CSV row",
        processed(OutputFilter="$.SageMakerOutput"),
        "names members, which a row of text/csv does not have",
    ),
    case(
        "a join of records of unknown type",
        job_with((("DataProcessing",), {"JoinSource": "Input"})),
        "TransformInput.ContentType is not given",
    ),
    case(
        "a join of pictures",
        job_with(
            (("TransformInput",), {"ContentType": "image/png"}),
            (("DataProcessing",), {"JoinSource": "Input"}),
        ),
        "TransformInput.ContentType is image/png",
    ),
    case(
        "a join of CSV and JSON",
        job_with(
            (("TransformInput",), CSV_INPUT),
            (("TransformOutput",), {**CSV_OUTPUT, "Accept": "application/json"}),
            (("DataProcessing",), {"JoinSource": "Input"}),
        ),
        "needs the same type for both",
    ),
    case(
        "an input filter before answers that nobody reads",
        job_with(
            (("TransformInput",), CSV_INPUT),
            (("TransformOutput",), {"Accept": "application/json"}),
            (("DataProcessing",), {"InputFilter": "$[1:]"}),
        ),
        None,
    ),
    case(
        "rows that would run together",
        job_with(
            (("TransformInput",), CSV_INPUT),
            (("TransformOutput",), {"Accept": "text/csv"}),
            (("DataProcessing",), {"OutputFilter": "$[-1]"}),
        ),
        "SplitType is Line and TransformOutput.AssembleWith None",
    ),
    case(
        "a filter of binary records",
        job_with(
            (("TransformInput",), {"ContentType": "text/csv", "SplitType": "RecordIO"}),
            (("DataProcessing",), {"InputFilter": "$[1:]"}),
        ),
        "SplitType RecordIO does not go with DataProcessing",
    ),
    case(
        "inference ids in pictures",
        job_with(
            (("TransformInput",), {"ContentType": "image/png"}),
            (("DataCaptureConfig",), {"DestinationS3Uri": "s3://c/k", "GenerateInferenceId": True}),
        ),
        "TransformOutput.Accept is image/png",
    ),
    case("no such model", {**JOB, "ModelName": "gone"}, "Could not find model"),
    case(
        "many models, none of them named",
        {**JOB, "ModelName": "many"},
        "name the model that the job shall use, as the tag hostelry:target-model",
    ),
    case(
        "a model outside the prefix",
        {**JOB, "ModelName": "many", **tagged("../other.tar.gz")},
        'Tag hostelry:target-model is "../other.tar.gz"; it must be a path below s3://models/all/',
    ),
    case(
        "a model of many where there is one",
        {**JOB, **tagged("m1.tar.gz")},
        'but model "m" has no multi-model container',
    ),
)
def test_rules_of_a_request(api: Api, params: dict[str, Any], expected: str | None) -> None:
    api.make.model("m")
    api.make.model(
        "many",
        PrimaryContainer={"Image": "i", "Mode": "MultiModel", "ModelDataUrl": "s3://models/all/"},
    )
    if expected is None:
        api.call("CreateTransformJob", **params)
        assert api.call("ListTransformJobs")["TransformJobSummaries"]
    else:
        assert expected in api.refusal("CreateTransformJob", **params)
        assert api.call("ListTransformJobs") == {"TransformJobSummaries": []}


def test_one_of_many_models_is_the_jobs_only_one(api: Api, job: Callable[[], TransformJob]) -> None:
    container = {"Image": "i", "Mode": "MultiModel", "ModelDataUrl": "s3://models/all"}
    api.make.model("m", PrimaryContainer={**container, "Environment": {"A": "1"}})
    api.call("CreateTransformJob", **JOB, **tagged("a/m1.tar.gz"))
    (found,) = job().model.containers
    assert not found.is_multi_model
    assert found.source == ArtifactSource(
        uri="s3://models/all/a/m1.tar.gz", kind=SourceKind.ARCHIVE
    )
    assert (found.image, found.environment) == ("i", {"A": "1"})


def test_at_most_a_hundred_instances(api: Api) -> None:
    api.make.model("m")
    with pytest.raises(ServiceError) as caught:
        api.call("CreateTransformJob", **job_with((("TransformResources", "InstanceCount"), 101)))
    assert caught.value.code == "ResourceLimitExceeded"
    assert "TransformResources.InstanceCount is 101; at most 100" in caught.value.message


def test_a_name_is_used_once_in_any_case(api: Api) -> None:
    api.make.model("m")
    api.call("CreateTransformJob", **JOB)
    with pytest.raises(ServiceError) as caught:
        api.call("CreateTransformJob", **{**JOB, "TransformJobName": "job-1"})
    assert (caught.value.code, caught.value.http_status) == ("ResourceInUse", 400)
    assert "Job name must be unique" in caught.value.message


@pytest.mark.parametrize("operation", ["DescribeTransformJob", "StopTransformJob"])
def test_a_job_that_is_not_there(api: Api, operation: str) -> None:
    # The waiter transform_job_completed_or_stopped ends at a ValidationException.
    text = api.refusal(operation, TransformJobName="gone")
    assert text == f'Could not find transform job "{ARN}transform-job/gone".'


def test_a_stop_is_answered_at_once_and_again(api: Api, job: Callable[[], TransformJob]) -> None:
    api.make.model("m")
    api.call("CreateTransformJob", **JOB)
    api.clock.advance(5.0)
    assert api.call("StopTransformJob", TransformJobName="Job-1") == {}
    assert api.call("StopTransformJob", TransformJobName="Job-1") == {}
    shown = api.call("DescribeTransformJob", TransformJobName="Job-1")
    assert shown["TransformJobStatus"] == "Stopping"
    deadline_at = job().deadline_at
    assert deadline_at is not None
    assert deadline_at < api.clock.now() + 3600.0, "a stop does not wait for the job's own limit"


@pytest.mark.parametrize("status", ["Completed", "Failed", "Stopped"])
def test_a_job_that_is_over_is_not_stopped(
    api: Api, change_job: Callable[..., None], status: str
) -> None:
    api.make.model("m")
    api.call("CreateTransformJob", **JOB)
    change_job(status=TransformJobStatus(status))
    assert f"in status {status}" in api.refusal("StopTransformJob", TransformJobName="Job-1")


@pytest.fixture
def change_job(state: State, scope: Scope) -> Callable[..., None]:
    """`change_job(**fields)` changes the job, or the job `at`, as a reconciler does."""

    def change(at: str = "Job-1", **fields: Any) -> None:
        found = state.transform_jobs.get(scope, at)
        assert found is not None
        state.transform_jobs.put(scope, at, replace(found.value, **fields), expect=found.version)

    return change


def test_times_and_reason_of_a_failed_job(api: Api, change_job: Callable[..., None]) -> None:
    api.make.model("m")
    api.call("CreateTransformJob", **JOB)
    at = api.clock.now()
    change_job(
        status=TransformJobStatus.FAILED,
        started_at=at + 1,
        ended_at=at + 2,
        failure_reason="x" * 2000,
    )
    shown = api.call("DescribeTransformJob", TransformJobName="Job-1")
    assert (shown["TransformStartTime"], shown["TransformEndTime"]) == (at + 1, at + 2)
    assert shown["FailureReason"] == "x" * 1021 + "..."
    listed = api.call("ListTransformJobs", StatusEquals="Failed")["TransformJobSummaries"]
    assert listed == [
        {
            "TransformJobName": "Job-1",
            "TransformJobArn": ARN + "transform-job/job-1",
            "CreationTime": at,
            "LastModifiedTime": at,
            "TransformEndTime": at + 2,
            "TransformJobStatus": "Failed",
            "FailureReason": "x" * 1021 + "...",
        }
    ]


def test_jobs_are_listed_in_pages(api: Api) -> None:
    api.make.model("m")
    for name in ("b-x", "a-x", "c-y"):
        api.call("CreateTransformJob", **{**JOB, "TransformJobName": name})
        api.clock.advance(60.0)

    def found(**params: Any) -> list[str]:
        rows = api.call("ListTransformJobs", **params)["TransformJobSummaries"]
        return [row["TransformJobName"] for row in rows]

    assert found() == ["c-y", "a-x", "b-x"]
    assert found(SortBy="Name", SortOrder="Ascending") == ["a-x", "b-x", "c-y"]
    assert found(NameContains="-x") == ["a-x", "b-x"]
    assert found(StatusEquals="Completed") == []
    first = api.call("ListTransformJobs", MaxResults=2)
    assert found(MaxResults=2, NextToken=first["NextToken"]) == ["b-x"]


def test_a_job_is_tagged(api: Api) -> None:
    api.make.model("m")
    api.call("CreateTransformJob", **{**JOB, "Tags": [{"Key": "team", "Value": "a"}]})
    arn = ARN + "transform-job/job-1"
    api.call("AddTags", ResourceArn=arn, Tags=[{"Key": "cost", "Value": "1"}])
    tags = api.call("ListTags", ResourceArn=arn)["Tags"]
    assert {it["Key"]: it["Value"] for it in tags} == {"team": "a", "cost": "1"}


def test_clients_do_not_see_the_endpoint_of_a_job(api: Api) -> None:
    api.make.model("m")
    api.call("CreateTransformJob", **JOB)
    TransformJobs(api.state, api.clock).loop.one_pass()
    name = "transform-job/Job-1"
    assert api.state.endpoints.get(api.scope, name) is not None
    assert api.call("ListEndpoints") == {"Endpoints": []}
    arn = f"{ARN}endpoint/{name.lower()}"
    text = api.refusal("AddTags", ResourceArn=arn, Tags=[{"Key": "hostelry:zero", "Value": "hold"}])
    assert text == f'Could not find endpoint "{arn}".'
    for operation in ("DescribeEndpoint", "DeleteEndpoint"):
        with pytest.raises(AssertionError, match="does not match"):
            api.call(
                operation, EndpointName=name
            )  # the service model, which every call passes first


def test_the_model_may_be_deleted_while_a_job_runs(
    api: Api, job: Callable[[], TransformJob]
) -> None:
    api.make.model("m")
    api.call("CreateTransformJob", **JOB)
    api.call("DeleteModel", ModelName="m")
    assert job().model.containers[0].image == api.make.image
