"""Several control processes over one PostgreSQL: one of them leads after any fault."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from tests.integration.control_rig import (
    ControlUnderTest,
    create_config,
    create_endpoint,
    endpoint_status,
)
from tests.integration.joined_host import health_of
from tests.integration.leader_rig import Controls, controls
from tests.integration.platform import CLI, Platform, clean_environment, until
from tests.postgres_rig import postgres_database, postgres_server

from hostelry.base.errors import Fenced
from hostelry.base.peers import LeaderEpoch
from hostelry.base.ports import free_ports
from hostelry.control.standby import STEPPED_DOWN
from hostelry.fleet.local.client import HttpAgent
from hostelry.fleet.records import instance_folders
from hostelry.home.home import Home
from hostelry.home.run_file import live_run_file, live_run_files

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Controls]:
    with postgres_database() as url, controls(tmp_path, url, 2) as found:
        yield found


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Controls]:
    with postgres_database() as url, controls(tmp_path, url, 3) as found:
        yield found


def config_names(found: Controls) -> set[str]:
    answer = found.leader().client().list_endpoint_configs(MaxResults=100)
    return {it["EndpointConfigName"] for it in answer["EndpointConfigs"]}


def test_a_killed_leader_is_followed_by_one_with_all_that_it_acknowledged(two: Controls) -> None:
    first = two.leader()
    sagemaker = first.client()
    create_endpoint(sagemaker, "chat")
    first.until(lambda: endpoint_status(sagemaker, "chat") == "InService", "chat serves")
    agents = first.agents()
    acknowledged = {"chat"}
    killing = threading.Timer(0.2, first.kill)
    killing.start()
    for number in range(500):
        try:
            create_config(sagemaker, f"config-{number}")
        except (BotoCoreError, ClientError):
            break
        acknowledged.add(f"config-{number}")
    killing.join()
    assert len(acknowledged) < 500

    second = two.leader(first)
    names = config_names(two)
    assert acknowledged <= names
    assert len(names - acknowledged) <= 1, "the call that was not answered"
    found = two.leader_of(second)
    assert (found["leader"], found["epoch"]) == (second.url, 2)
    assert second.state()["control"]["changes"][0]["reason"].startswith("the session of ")
    assert endpoint_status(second.client(), "chat") == "InService"
    assert second.agents() == agents, "agents are adopted, not started again"
    (folder,) = instance_folders(second.home.instances)
    second.until(lambda: folder.load_epoch() == 2, "the agent knows the new epoch")
    record = folder.load_agent()
    assert record is not None
    for older in (1, 0):
        late = HttpAgent(record.address, first.credentials.internal_key, epoch=LeaderEpoch(older))
        with pytest.raises(Fenced, match="the leader with epoch 2 has called"):
            asyncio.run(late.apply(()))

    first.begin()
    first.until(partial(two.is_led_by, second, first), "it is a standby")
    assert first.health()["role"] == "standby"
    assert endpoint_status(first.client(), "chat") == "InService", "it forwards to the leader"
    assert first.state()["endpoints"] == second.state()["endpoints"]

    folder.save_epoch(50)  # as of a database that was restored from a backup
    os.kill(record.pid, signal.SIGKILL)
    assert second.process is not None
    assert second.process.wait(60) == STEPPED_DOWN
    first.until(lambda: first.health().get("ready"), "it leads")
    assert epochs_of(two, first) == (52, "50")
    assert endpoint_status(first.client(), "chat") == "InService"


@pytest.mark.thorough
def test_a_frozen_leader_is_refused_when_it_thaws(three: Controls) -> None:
    first = three.leader()
    create_config(first.client(), "before")
    assert first.process is not None
    first.process.send_signal(signal.SIGSTOP)
    outcome: list[object] = []

    def late_write() -> None:
        try:
            create_config(first.client(), "late")  # the kernel takes it, for a process that stands
        except (BotoCoreError, ClientError) as error:
            outcome.append(error)
        else:
            outcome.append("acknowledged")

    writing = threading.Thread(target=late_write)
    writing.start()
    second = three.leader(first)
    create_config(second.client(), "after")
    first.process.send_signal(signal.SIGCONT)
    assert first.process.wait(20) == STEPPED_DOWN
    writing.join(30)
    assert isinstance(outcome[0], BotoCoreError | ClientError), outcome
    assert config_names(three) == {"before", "after"}
    line = "this control steps down: epoch 1 is over:"
    assert line in first.log.read_text()
    assert " did not renew it for " in three.leader_of(second)["changes"][0]["reason"]

    assert second.kill(signal.SIGTERM) == 0
    third = three.leader(first, second)
    assert three.leader_of(third)["changes"][0]["reason"].endswith(" released it")
    assert config_names(Controls([third])) == {"before", "after"}


def test_a_restart_of_the_database_changes_no_leader(two: Controls) -> None:
    leader = two.leader()
    create_config(leader.client(), "before")
    postgres_server().restart()
    for control in two.all:
        control.until(partial(two.is_led_by, leader, control), "it leads still")
    assert two.leader_of(leader)["epoch"] == 1
    leader.until(lambda: is_created(leader.client(), "after"), "it writes again")
    postgres_server().kill()
    postgres_server().start()
    leader.until(lambda: is_created(leader.client(), "after-a-crash"), "it writes again")
    assert config_names(two) == {"before", "after", "after-a-crash"}
    assert two.leader_of(leader)["epoch"] == 1


def epochs_of(found: Controls, asked: ControlUnderTest) -> tuple[int, str]:
    """The present epoch, and the one that the change before it names."""
    answer = found.leader_of(asked)
    words = answer["changes"][1]["reason"].split()
    return answer["epoch"], words[words.index("epoch") + 1].rstrip(",")


def is_created(sagemaker: Any, name: str) -> bool:
    """Try to create the configuration. True if it exists. After 503 an SDK tries again."""
    try:
        create_config(sagemaker, name)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ServiceUnavailable":
            return "already existing" in str(error)
        return False
    return True


def controls_of(home: Home) -> list[str]:
    """The addresses of controls that a host of control keeps."""
    with contextlib.suppress(FileNotFoundError):
        return list(json.loads(home.known_controls.read_bytes()))
    return []


def assert_calls_pass(platform: Platform, name: str) -> None:
    """A write, a read and another write pass through the gateway of `platform`."""
    sagemaker = platform.boto3("sagemaker", retries={"total_max_attempts": 8, "mode": "standard"})
    until(lambda: is_created(sagemaker, name), f"{name} is created")
    assert sagemaker.describe_endpoint_config(EndpointConfigName=name)["ProductionVariants"]
    sagemaker.delete_endpoint_config(EndpointConfigName=name)


@pytest.mark.thorough
def test_a_control_that_joins_is_supervised_and_leads(tmp_path: Path) -> None:
    ports = [("--cluster-host", "127.0.0.1", "--cluster-port", str(it)) for it in free_ports(2)]
    less = ("--no-console", "--no-mirror-process", "--gateway-workers", "1")
    with (
        postgres_database() as url,
        Platform(tmp_path / "first", "--store", url, *ports[0], *less) as first,
    ):
        kms = first.boto3("kms", retries={"total_max_attempts": 8})
        key_id = kms.create_key()["KeyMetadata"]["KeyId"]
        sealed = kms.encrypt(KeyId=key_id, Plaintext=b"kept")["CiphertextBlob"]
        s3 = first.boto3("s3", retries={"total_max_attempts": 8}, s3={"addressing_style": "path"})
        s3.create_bucket(Bucket="sealed")
        printed = json.loads(first.cli("join-token", "--role", "control", "--json").stdout)
        further, stopped, frozen = Home(tmp_path / "further"), first.pid("up"), list[int]()
        words = ["control", "--home", str(further.root), "--json", "--host-name", "second"]
        words += ["--join", printed["url"], "--token", printed["token"], *ports[1]]
        environment = clean_environment()
        with subprocess.Popen(
            [*CLI, *words], stdout=subprocess.PIPE, text=True, env=environment
        ) as host:
            try:
                assert host.stdout is not None
                assert json.loads(host.stdout.readline())["ready"]
                killed = live_run_file(further, "control")
                assert killed is not None
                os.kill(killed.pid, signal.SIGKILL)
                until(lambda: health_of(further).get("role") == "standby", "it is back")
                until(lambda: len(controls_of(first.home)) == 2, "the first knows the second")
                os.kill(stopped, signal.SIGSTOP)  # which would start the first control again
                before = first.kill("control")
                assert_calls_pass(first, "without-own-control")
                s3.put_object(Bucket="sealed", Key="a", Body=b"a", ServerSideEncryption="aws:kms")
                assert first.running("control") is None, "the second took the calls"
                assert health_of(further)["ready"]
                os.kill(stopped, signal.SIGCONT)
                back = first.back("control", before, 60)
                assert kms.decrypt(CiphertextBlob=sealed)["Plaintext"] == b"kept"
                frozen = [stopped, back]
                for pid in frozen:
                    os.kill(pid, signal.SIGSTOP)
                assert_calls_pass(first, "with-a-frozen-control")
                for pid in frozen:
                    os.kill(pid, signal.SIGCONT)
                shown = subprocess.run(
                    [*CLI, "status", "--home", str(further.root)],
                    capture_output=True, text=True, check=True, env=environment,
                ).stdout  # fmt: skip
                assert re.search(r"^leader   second-\d+-\w+  https://control@127", shown, re.M), (
                    shown
                )
                names = [it.name for it in live_run_files(further)]
                assert sorted(names) == ["control", "jobs", "proxy", "up"]
            finally:
                for pid in (stopped, *frozen):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                host.send_signal(signal.SIGTERM)
            assert host.wait(60) == 0
        assert live_run_files(further) == []
        until(lambda: health_of(first.home).get("ready"), "the first leads again", 60)
        assert kms.decrypt(CiphertextBlob=sealed)["Plaintext"] == b"kept"
