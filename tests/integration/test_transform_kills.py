"""Transform jobs over three instances, with kills of each platform process, and bad inputs."""

import contextlib
import json
import signal
from collections.abc import Iterator
from functools import partial

import httpx
import psutil  # type: ignore[import-untyped]
import pytest
from botocore.exceptions import BotoCoreError, ClientError
from tests.integration.platform import Platform, until
from tests.integration.served_models import Served
from tests.integration.transform_rig import create, ended, keys, output, serving_rows

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]
NUM_OBJECTS, NUM_ROWS = 30, 100
KILLED = ("jobs", "control", "copy", "gateway-1", "objectstore", "s3door", "jobs")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving_rows(tmp_path_factory.mktemp("served")) as found:
        yield found


def copies_of(platform: Platform, endpoint: str) -> list[int]:
    """The ports of an endpoint's ready copies. Empty while control is away."""
    headers = {"X-Hostelry-Key": platform.credentials.internal_key}
    try:
        routes = httpx.get(f"{platform.config.control_url}/internal/routes", headers=headers).json()
    except httpx.TransportError:
        return []
    variants = [v for it in routes["endpoints"] if it["name"] == endpoint for v in it["variants"]]
    return [int(c["address"].rpartition(":")[2]) for it in variants for c in it["copies"]]


def kill_listener(platform: Platform, port: int) -> None:
    """Kill the processes of the platform that listen on `port`."""
    for pid in platform.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if any(it.laddr and it.laddr.port == port for it in process.net_connections("tcp4")):
                process.send_signal(signal.SIGKILL)


def has_more_than(served: Served, name: str, count: int) -> bool:
    return num_done(served, name) > count


def num_done(served: Served, name: str) -> int:
    try:
        return len(keys(served, f"{name}/"))
    except (BotoCoreError, ClientError):
        return 0


def trouble_without_store(served: Served) -> str | None:
    """Control's reason why the job "stopped" waits. If the object store runs, it is killed first.

    Control knows the reason for about 3 s after a failed attempt.
    """
    platform = served.platform
    if platform.running("objectstore") is not None:
        with contextlib.suppress(ProcessLookupError):
            platform.kill("objectstore")
    headers = {"X-Hostelry-Key": platform.credentials.internal_key}
    state = httpx.get(f"{platform.config.control_url}/internal/state", headers=headers).json()
    jobs = (it for it in state["transform_jobs"] if it["name"] == "stopped")
    return next((it["progress"]["trouble"] for it in jobs), None)


@pytest.mark.thorough
def test_no_record_is_lost_or_doubled_though_every_process_is_killed(served: Served) -> None:
    platform = served.platform
    rows = {
        f"{number:02}.csv": [f"id{number}-{n},{number},{n}" for n in range(NUM_ROWS)]
        for number in range(NUM_OBJECTS)
    }
    for name, lines in rows.items():
        served.s3.put_object(Bucket="rows", Key=f"in/{name}", Body="\n".join(lines).encode())
    create(
        served,
        "killed",
        "s3://rows/in/",
        BatchStrategy="SingleRecord",
        MaxConcurrentTransforms=2,
        DataProcessing={"InputFilter": "$[1:]", "JoinSource": "Input"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 3},
    )
    until(lambda: len(copies_of(platform, "transform-job/killed")) == 3, "three copies serve", 90)
    for number, name in enumerate(KILLED):
        until(partial(has_more_than, served, "killed", number), "the job goes on", 60)
        if name == "copy":
            ports = until(
                lambda: copies_of(platform, "transform-job/killed"), "control is back", 60
            )
            kill_listener(platform, ports[0])
        else:
            platform.back(name, platform.kill(name))
    found = ended(served, "killed", 200)
    assert found["TransformJobStatus"] == "Completed", found
    assert sorted(keys(served, "killed/")) == [f"killed/{it}.out" for it in sorted(rows)]
    for name, lines in rows.items():
        wanted = [f"{it},{answer_to(it):.1f}" for it in lines]
        assert output(served, f"killed/{name}.out").decode().splitlines() == wanted


def answer_to(line: str) -> float:
    """The model's own function: of all that fit its rows, (a, a + 1), the one of least norm."""
    _, first, second = line.split(",")
    return 2.5 * (int(first) + int(second)) + 1.5


def test_bad_objects_fail_with_their_reasons_and_the_others_go_on(served: Served) -> None:
    served.s3.put_object(Bucket="rows", Key="mixed/good.csv", Body=b"1,2\n")
    served.s3.put_object(Bucket="rows", Key="mixed/large.csv", Body=b"1" * (1024 * 1024 + 1))
    served.s3.put_object(Bucket="rows", Key="mixed/odd.csv", Body=b"1,2,3\n")
    manifest = [{"prefix": "s3://rows/mixed/"}, "missing.csv", "good.csv", "large.csv", "odd.csv"]
    served.s3.put_object(Bucket="rows", Key="m.json", Body=json.dumps(manifest).encode())
    served.s3.put_object(Bucket="rows", Key="none.json", Body=b'[{"prefix": "s3://rows/mixed/"}]')
    once = {"ModelClientConfig": {"InvocationsMaxRetries": 0}}
    by_manifest = {"S3DataType": "ManifestFile", **once}
    create(served, "bad", "s3://rows/m.json", MaxPayloadInMB=1, **by_manifest)
    create(served, "nothing", "s3://rows/none.json", **by_manifest)
    create(served, "wrong-split", "s3://rows/mixed/good.csv", SplitType="RecordIO", **once)
    nowhere = {"S3OutputPath": "s3://nowhere/out", "Accept": "text/csv", "AssembleWith": "Line"}
    create(served, "no-output", "s3://rows/mixed/good.csv", TransformOutput=nowhere, **once)
    reasons = {it: ended(served, it) for it in ("bad", "nothing", "wrong-split", "no-output")}
    assert {it["TransformJobStatus"] for it in reasons.values()} == {"Failed"}
    messages = {name: it["FailureReason"] for name, it in reasons.items()}
    assert messages["bad"].startswith(
        "ClientError: 3 of 4 objects failed. The first: s3://rows/mixed/"
    )
    assert "missing.csv" in messages["bad"]
    assert "names no object" in messages["nothing"]
    assert "Record 1 of s3://rows/mixed/good.csv is cut off" in messages["wrong-split"]
    assert "NoSuchBucket" in messages["no-output"]
    assert keys(served, "bad/") == ["bad/good.csv.out"]


@pytest.mark.thorough
def test_a_job_that_is_stopped_keeps_what_is_complete(served: Served) -> None:
    for number in range(200):
        body = b"".join(b"%d,%d\n" % (number, it) for it in range(100))
        served.s3.put_object(Bucket="rows", Key=f"many/{number}.csv", Body=body)
    create(served, "stopped", "s3://rows/many/", BatchStrategy="SingleRecord")
    until(lambda: num_done(served, "stopped") > 2, "some objects are done", 90)
    found = until(lambda: trouble_without_store(served), "the job says what it waits for", 60)
    assert "rows/" in found
    until(lambda: num_done(served, "stopped") > 2, "the object store is back", 60)
    served.sagemaker.stop_transform_job(TransformJobName="stopped")
    assert ended(served, "stopped", 30)["TransformJobStatus"] == "Stopped"
    done = keys(served, "stopped/")
    assert 2 < len(done) < 200
    assert all(len(output(served, it).splitlines()) == 100 for it in done)
