"""Data capture on a whole platform: options, encodings, streams, updates, kills, and faults."""

import base64
import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EventStreamError
from tests.integration.capture_rig import ECHO_RULE, CapturedEndpoints, capture_of, datas
from tests.integration.platform import Platform, until
from tests.integration.served_models import IMAGE, Served, sklearn_runtimes
from tests.integration.virtual_environments import virtual_environment
from tests.selection import runs_all

from hostelry.base.clock import SystemClock
from hostelry.base.runtimes import VARIABLE, runtime_python

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
PROGRAM = Path(__file__).parent / "sdk_programs" / "sdk2_data_capture.py"
CAPTURES = {
    "both": capture_of(),
    "input": capture_of("Input"),
    "output": capture_of("Output"),
    "half": capture_of("InputAndOutput", percent=50),
    "none": capture_of(percent=0),
    "lost": capture_of(DestinationS3Uri="s3://missing/here"),
}


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CapturedEndpoints]:
    home, runtimes = tmp_path_factory.mktemp("home") / "home", sklearn_runtimes()
    environment = {VARIABLE: str(runtimes), "HOSTELRY_CUSTOM_CODE": "trusted"}
    flags = ("--pace", "60", "--gateway-workers", "2")  # objects end after a second
    platform = Platform(home, *flags, environment=environment)
    home.mkdir(mode=0o700)
    platform.home.images.write_text(ECHO_RULE)
    with platform:
        found = CapturedEndpoints(platform)
        key = platform.boto3("kms").create_key()["KeyMetadata"]["KeyId"]
        found.config("pair", capture_of("InputAndOutput", percent=50), has_shadow=True)
        outputs = {"OutputConfig": {"S3OutputPath": "s3://seen/out"}}
        found.config("queue", capture_of(), AsyncInferenceConfig=outputs)
        for name in ("pair", "queue"):  # their tests wait for them
            found.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        found.deploy({**CAPTURES, "sealed": capture_of(KmsKeyId=key)})
        yield found


@pytest.fixture(scope="module")
def program(
    ends: CapturedEndpoints, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["Future[tuple[str, Served]]"]:
    """The SDK's program. It runs at the same time as other tests, because it waits long."""
    runtimes = Path(ends.platform.environment[VARIABLE])
    folder = tmp_path_factory.mktemp("trained")

    def run() -> tuple[str, Served]:
        served = Served(ends.platform, folder, runtime_python(runtimes, "sklearn-1.2"))
        python = virtual_environment("sdk2", "sagemaker<3", "awscli") / "python"
        rows = json.dumps(served.expected["rows"])
        command = [str(python), "-W", "ignore", str(PROGRAM), "s3://models/inside.tar.gz", IMAGE]
        patient = {"AWS_RETRY_MODE": "standard", "AWS_MAX_ATTEMPTS": "10"}  # the store is killed
        return ends.platform.exec([*command, rows], patient).stdout, served

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(run)


@pytest.fixture(scope="module", autouse=True)
def program_begins_first(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> None:
    if runs_all(pytestconfig):
        request.getfixturevalue("program")


def test_a_fault_of_a_destination_is_reported_and_keeps_records_until_it_is_gone(
    ends: CapturedEndpoints,
) -> None:
    kms = ends.platform.boto3("kms")
    key = ends.in_service("sealed")["DataCaptureConfig"]["KmsKeyId"]
    kms.disable_key(KeyId=key)
    for name in ("lost", "sealed"):
        assert ends.invoke(name, b"{}") == b"{}"
    until(lambda: "NoSuchBucket" in ends.upload_cause("lost"), "the cause is known", 20)
    until(lambda: ends.upload_cause("sealed"), "the cause is known", 20)
    assert "uploads fail: writing s3://missing/here/lost/" in ends.status("lost")
    kms.enable_key(KeyId=key)
    ends.s3.create_bucket(Bucket="missing")
    (record,) = ends.all_of("lost", 1, "missing")
    assert datas(record)["endpointInput"] == ("JSON", "{}")
    ends.all_of("sealed", 1)
    (found,) = ends.s3.list_objects_v2(Bucket="seen", Prefix="here/sealed/")["Contents"]
    head = ends.s3.head_object(Bucket="seen", Key=found["Key"])
    assert head["ServerSideEncryption"] == "aws:kms"
    assert head["SSEKMSKeyId"].endswith(key)
    until(lambda: not ends.upload_cause("lost"), "the cause is gone", 20)
    until(lambda: not ends.upload_cause("sealed"), "the cause is gone", 20)


def test_a_record_has_both_sides_and_the_metadata_of_its_request(ends: CapturedEndpoints) -> None:
    began = int(SystemClock().now())
    ends.invoke("both", b"1,2\n", "text/csv; charset=utf-8", CustomAttributes="a=1;b=2")
    ends.invoke("both", b'{"x": "\xc3\xa9"}', InferenceId="mine-7")
    ends.invoke("both", b"\x00\xff", "application/octet-stream")
    ends.invoke("both", b"\xff", "text/csv")
    csv, text, binary, torn = ends.all_of("both", 4)
    shown = {"mode": "INPUT", "data": "1,2\n", "encoding": "CSV"}
    kind = {"observedContentType": "text/csv; charset=utf-8"}
    assert csv["captureData"]["endpointInput"] == {**kind, **shown}
    assert csv["captureData"]["endpointOutput"] == {**kind, **shown, "mode": "OUTPUT"}
    assert csv["eventVersion"] == "0"
    assert csv["eventMetadata"]["customAttributes"] == ["a=1;b=2"]
    at = datetime.fromisoformat(csv["eventMetadata"]["inferenceTime"]).timestamp()
    assert began <= at <= SystemClock().now()
    assert text["eventMetadata"]["inferenceId"] == "mine-7"
    assert datas(text) == dict.fromkeys(datas(text), ("JSON", '{"x": "é"}'))
    assert datas(binary)["endpointOutput"] == ("BASE64", base64.b64encode(b"\x00\xff").decode())
    assert datas(torn)["endpointInput"][0] == "BASE64", "it is no text, whatever its type"
    assert len({it["eventMetadata"]["eventId"] for it in (csv, text, binary, torn)}) == 4
    found = ends.in_service("both")["DataCaptureConfig"]
    assert (found["CaptureStatus"], found["CurrentSamplingPercentage"]) == ("Started", 100)
    until(lambda: "4 captured, 0 dropped" in ends.status("both"), "status counts them", 20)


def test_one_option_captures_one_side(ends: CapturedEndpoints) -> None:
    sides = {"input": "endpointInput", "output": "endpointOutput"}
    for name in sides:
        ends.invoke(name, b'"hi"')
    found = {name: [datas(it) for it in ends.all_of(name, 1)] for name in sides}
    assert found == {name: [{side: ("JSON", '"hi"')}] for name, side in sides.items()}


def test_exactly_the_percentage_of_each_hundred_is_captured(ends: CapturedEndpoints) -> None:
    # One connection stays with one worker, which counts its hundreds by itself.
    for number in range(100):
        ends.invoke("half", b"%d" % number)
        ends.invoke("none", b"%d" % number)
    numbers = [int(datas(it)["endpointInput"][1]) for it in ends.all_of("half", 50)]
    assert numbers == sorted(set(numbers))
    gaps = {later - earlier for earlier, later in pairwise(numbers)}
    assert len(gaps) > 1, "places are chosen at random"
    assert ends.records("none") == []


def test_a_stream_is_one_record_and_failures_are_none(ends: CapturedEndpoints) -> None:
    before = len(ends.records("both"))
    with pytest.raises(ClientError):
        ends.invoke("both", b"{}", CustomAttributes="status=500")
    assert stream(ends, "close=middle")[-1]["Code"] == "ModelStreamError"
    chunks = stream(ends, "chunks=3;interval_ms=20")
    records = ends.all_of("both", before + 1)
    answer = b"".join(it["PayloadPart"]["Bytes"] for it in chunks)
    assert len(answer) == 48
    assert datas(records[-1]) == {
        "endpointInput": ("JSON", '{"stream": true}'),
        "endpointOutput": ("BASE64", base64.b64encode(answer).decode()),
    }


def test_a_shadows_answers_are_objects_of_its_own(ends: CapturedEndpoints) -> None:
    ends.in_service("pair")
    # One connection stays with one worker, which counts its hundreds by itself.
    for number in range(90):
        ends.invoke("pair", b"%d" % number, InferenceId=f"id-{number}")
    for _ in range(10):
        stream(ends, "chunks=3", "pair")
    with pytest.raises(ClientError):
        ends.invoke("pair", b"{}", CustomAttributes="status=500")
    ends.all_of("pair", 100)
    found = {it: ends.records("pair", variant=it) for it in ("AllTraffic", "Shadow")}
    by_event = {
        name: {it["eventMetadata"]["eventId"]: it for it in records}
        for name, records in found.items()
    }
    assert by_event["AllTraffic"].keys() == by_event["Shadow"].keys()
    assert len(by_event["Shadow"]) == 50
    for event_id, record in by_event["Shadow"].items():
        client_s = by_event["AllTraffic"][event_id]
        inference_ids = [it["eventMetadata"].get("inferenceId") for it in (record, client_s)]
        assert inference_ids[0] == inference_ids[1]
        side = "endpointInput" if inference_ids[0] is None else "endpointOutput"
        assert datas(record)[side] == datas(client_s)[side]
    until(
        lambda: ends.status("pair").count("50 captured, 0 dropped") == 2, "status counts both", 20
    )


def stream(ends: CapturedEndpoints, commands: str, name: str = "both") -> list[dict[str, Any]]:
    """The events of a streamed answer. A failure is an event at the end."""
    answer = ends.runtime.invoke_endpoint_with_response_stream(
        EndpointName=name,
        ContentType="application/json",
        Body=b'{"stream": true}',
        CustomAttributes=commands,
    )
    events = []
    try:
        events += list(answer["Body"])
    except EventStreamError as error:
        events.append(error.response["Error"])
        # At its end the stream gives its connection back. A stream that is left gives it back when
        # garbage is collected, and the connection in use is discarded then.
        events += answer["Body"]
    return events


def test_an_update_turns_it_off_retains_it_and_excludes_it(ends: CapturedEndpoints) -> None:
    ends.config("off", capture_of(EnableCapture=False))
    ends.config("tenth", capture_of(percent=10))
    ends.config("fifth", capture_of(percent=20))
    found = ends.update("input", "off")["DataCaptureConfig"]
    assert (found["EnableCapture"], found["CaptureStatus"]) == (False, "Stopped")
    before = len(ends.records("input"))
    time.sleep(1.0)  # routes are promised to follow a change of status within a second
    for _ in range(5):
        ends.invoke("input", b"{}")
    retained = ends.update("input", "tenth", RetainAllVariantProperties=True)
    assert retained["DataCaptureConfig"] == found
    excluded = ends.update(
        "input",
        "fifth",
        RetainAllVariantProperties=True,
        ExcludeRetainedVariantProperties=[{"VariantPropertyType": "DataCaptureConfig"}],
    )
    assert excluded["DataCaptureConfig"]["CurrentSamplingPercentage"] == 20
    assert len(ends.records("input")) == before


def test_a_killed_worker_loses_its_last_second_at_most(ends: CapturedEndpoints) -> None:
    before = len(ends.all_of("output", 1))
    for number in range(20):
        ends.invoke("output", b"%d" % number)
    time.sleep(1.5)
    killed = {name: ends.platform.kill(name) for name in ends.platform.gateway_workers}
    for name, pid in killed.items():
        ends.platform.back(name, pid)
    records = ends.all_of("output", before + 20)
    assert [datas(it)["endpointOutput"][1] for it in records[before:]] == [
        str(i) for i in range(20)
    ]


def test_a_store_that_is_away_delays_objects_and_no_answer(ends: CapturedEndpoints) -> None:
    before = len(ends.all_of("output", 21))
    killed = ends.platform.kill("objectstore")
    for number in range(10):
        assert ends.invoke("output", b"%d" % number) == b"%d" % number
    ends.platform.back("objectstore", killed)
    assert len(ends.all_of("output", before + 10)) == before + 10


def test_asynchronous_requests_are_captured_once_though_the_process_is_killed(
    ends: CapturedEndpoints,
) -> None:
    ends.in_service("queue")
    large = b"x" * (2 * 1024 * 1024)
    ends.s3.put_object(Bucket="seen", Key="in/large", Body=large, ContentType="text/csv")

    def num_answered() -> int:
        return len(ends.s3.list_objects_v2(Bucket="seen", Prefix="out/").get("Contents", []))

    def ask(number: int, commands: str = "") -> str:
        answer = ends.runtime.invoke_endpoint_async(
            EndpointName="queue",
            InferenceId=f"id-{number}",
            ContentType="application/json",
            Body=b"%d" % number,
            CustomAttributes=commands or "a=1",
        )
        return str(answer["InferenceId"])

    ends.runtime.invoke_endpoint_async(
        EndpointName="queue", InputLocation="s3://seen/in/large", InferenceId="large"
    )
    asked = {ask(number) for number in range(10)}
    ask(10, "status=400")
    until(lambda: num_answered() == 12, "all are answered, one with its failure", 20)
    asked |= {ask(number, "sleep_ms=3000") for number in range(20, 24)}
    time.sleep(1.5)  # they are on the copy, the others' records on disk
    ends.platform.back("jobs", ends.platform.kill("jobs"))
    records = {it["eventMetadata"]["inferenceId"]: it for it in ends.all_of("queue", 15)}
    assert records.keys() == {"large", *asked}
    assert datas(records["id-3"]) == dict.fromkeys(datas(records["id-3"]), ("JSON", "3"))
    assert datas(records.pop("large"))["endpointInput"] == ("CSV", large.decode())
    assert len({it["eventMetadata"]["eventId"] for it in records.values()}) == 14


def test_metrics_count_what_was_captured_dropped_and_not_uploaded(ends: CapturedEndpoints) -> None:
    cloudwatch = ends.platform.boto3("cloudwatch")
    now = datetime.fromtimestamp(SystemClock().now(), UTC)

    def total(name: str, endpoint: str) -> float:
        found = cloudwatch.get_metric_statistics(
            Namespace="Hostelry",
            MetricName=name,
            Dimensions=[
                {"Name": "EndpointName", "Value": endpoint},
                {"Name": "VariantName", "Value": "AllTraffic"},
            ],
            StartTime=now - timedelta(minutes=30),
            EndTime=now + timedelta(minutes=5),
            Period=3600,
            Statistics=["Sum"],
        )
        return float(sum(it["Sum"] for it in found["Datapoints"]))

    until(lambda: total("CapturedRequests", "half") == 50, "the metric counts 50", 30)
    assert total("CaptureDroppedRequests", "half") == 0
    assert total("CapturedBytes", "half") > 50 * 100
    assert total("CaptureUploadFailures", "lost") > 0


@pytest.mark.thorough
def test_the_sdk_deploys_reads_and_switches_off_a_real_models_capture(
    program: "Future[tuple[str, Served]]",
) -> None:
    output, served = program.result(120)
    found = json.loads(output.splitlines()[-1])
    (record,) = map(json.loads, found["lines"])
    rows, predicted = served.expected["rows"], served.expected["predicted"]
    sent, answer = (datas(record)[it] for it in ("endpointInput", "endpointOutput"))
    assert (sent[0], answer[0]) == ("CSV", "CSV")
    lines = [[float(it) for it in line.split(",")] for line in sent[1].splitlines()]
    assert lines == rows
    numbers = [float(it) for it in answer[1].replace(",", "\n").split()]
    assert numbers == pytest.approx(predicted, abs=1e-5)
    assert (found["before"]["CaptureStatus"], found["after"]["CaptureStatus"]) == (
        "Started",
        "Stopped",
    )
