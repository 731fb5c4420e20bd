"""Each process killed and hung, during traffic and during a create, on a whole platform."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.integration.drill import (
    COMPONENT,
    ENDPOINT,
    OK,
    Traffic,
    copies_of,
    create_component,
    create_endpoint,
    described,
    wait_ready,
    write_image_rule,
)
from tests.integration.platform import Platform, kill_if_alive, until
from tests.selection import first_alone, thorough

from hostelry_lab.catalogue import BY_NAME, DRILLS
from hostelry_lab.context import drill_context
from hostelry_lab.drill_text import outcome_lines
from hostelry_lab.observer import PlatformObserver

pytestmark = [pytest.mark.integration, pytest.mark.slow]

# Errors that a client may get if a model server dies during its request.
NO_MODEL = {"ModelError", "ServiceUnavailable"}
PLATFORM_PROCESSES = ["gateway-1", "control", "objectstore"]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    root = tmp_path_factory.mktemp("drills") / "home"
    write_image_rule(root)
    with Platform(root) as running:
        running.may_log_tracebacks = True
        create_endpoint(running)
        create_component(running, COMPONENT, copies=2)
        wait_ready(running, COMPONENT, copies=2)
        yield running


def agent_pid(platform: Platform) -> int:
    (record,) = platform.home.instances.glob("*/agent.json")
    return int(json.loads(record.read_bytes())["process"]["pid"])


# These faults have other tests: the full disk test_full_home.py, with a separate platform, the
# supervisor's death test_supervisor_death.py, requests and batches test_jobs_drill.py, updates
# test_rollout_drill.py.
ELSEWHERE = ("supervisor-kill", "disk-full", "rollout", "jobs")
DRILLED = (
    "copy-kill",
    "copy-hang",
    "copy-oom",
    "crash-at-start",
    "crash-loop",
    "rolling-update",
    "many-copies",
    "tenant-poison",
    "tenant-poison-adapter",
    "tenant-flood",
    "tenant-flood-adapter",
    "tenant-memory",
    "tenant-forks",
    "tenant-disk",
    "tenant-hang",
    "agent-kill",
    "agent-hang",
    "control-kill",
    "control-hang",
    "gateway-kill",
    "gateway-kill-all",
    "gateway-hang",
    "objectstore-kill",
    "objectstore-hang",
)
# A fault for each kind of process, and each kind of fault once. `make test-all` runs all drills.
ALWAYS = (
    "copy-kill",
    "many-copies",
    "agent-kill",
    "control-kill",
    "gateway-hang",
    "objectstore-kill",
)


def test_every_drill_is_run() -> None:
    assert [drill.name for drill in DRILLS] == [*DRILLED, *ELSEWHERE]


@pytest.mark.parametrize("name", [name if name in ALWAYS else thorough(name) for name in DRILLED])
def test_a_drill_loses_nothing_and_fails_only_what_it_must(
    platform: Platform, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """How long each recovery took is printed: the drill's own targets are for a quiet machine."""
    wait_ready(platform, COMPONENT, copies=2)
    observer = PlatformObserver(
        home=platform.home, config=platform.config, credentials=platform.credentials
    )
    with drill_context(observer, ENDPOINT, COMPONENT, 4, lambda _: None, most_copies=12) as context:
        outcome = BY_NAME[name].outcome(context)
    with capsys.disabled():
        print("", *outcome_lines(outcome), sep="\n")
    assert not outcome.missed, outcome
    assert not outcome.lost, outcome
    assert outcome.not_run is None
    assert outcome.served is not None
    assert outcome.served.num_calls > 0


def test_a_disk_that_others_use_is_not_filled(platform: Platform) -> None:
    ran = platform.chaos("disk-full", "--json", code=1)
    (outcome,) = json.loads(ran.stdout)
    assert outcome["verdict"] == "NOT RUN"
    assert "mount -t tmpfs" in outcome["not_run"]


@pytest.mark.thorough
def test_a_drill_on_an_empty_platform_makes_an_endpoint_of_its_own_and_removes_it(
    tmp_path: Path,
) -> None:
    with Platform(tmp_path / "home") as platform:
        platform.may_log_tracebacks = True
        ran = platform.chaos("agent-kill", "--json", "--load", "2", code=None)
        (outcome,) = json.loads(ran.stdout)
        assert outcome["missed"] == [], ran.stdout
        assert "2 of 2 copies kept running" in outcome["kept"]
        assert platform.boto3("sagemaker").list_endpoints()["Endpoints"] == []
        refused = platform.chaos("copy-kill", "--endpoint", "nowhere", code=1)
        assert "nowhere has no ready copy to invoke" in refused.stderr
        refused = platform.chaos("agent-kill", "--copies", "9", code=2)
        assert "--copies is an option of many-copies" in refused.stderr


def test_a_stream_whose_model_server_is_killed_ends_with_a_modelled_error(
    platform: Platform,
) -> None:
    wait_ready(platform, COMPONENT, copies=2)
    ends: list[tuple[int, str]] = []
    traffic = Traffic(platform)
    readers = [
        threading.Thread(target=lambda: ends.append(traffic.stream(600, 0.05))) for _ in range(2)
    ]
    for reader in readers:
        reader.start()
    until(lambda: all(reader.is_alive() for reader in readers), "streams run")
    threading.Event().wait(0.5)  # real tokens are under way on both copies
    for pid in copies_of(platform, COMPONENT).values():
        os.kill(pid, signal.SIGKILL)
    for reader in readers:
        reader.join(30)
    assert [code for _, code in ends] == ["ModelStreamError"] * 2, ends
    assert all(lines > 0 for lines, _ in ends)
    seen: list[str] = []

    def answers() -> bool:
        seen.append(traffic.once())
        return seen[-1] == OK

    until(answers, "answers again")
    assert set(seen) <= {OK, *NO_MODEL}, "clients try again on 503, not on 400"
    wait_ready(platform, COMPONENT, copies=2)


def kill_gateway(platform: Platform) -> None:
    """Kill all workers at once, and return when all run again."""
    killed = [(name, platform.kill(name)) for name in platform.gateway_workers]
    for name, pid in killed:
        platform.back(name, pid)


def test_a_restarted_gateway_answers_from_its_kept_routes_while_control_is_dead(
    platform: Platform,
) -> None:
    traffic = Traffic(platform)
    control = platform.pid("control")
    os.kill(control, signal.SIGSTOP)
    try:
        kill_gateway(platform)
        until(lambda: traffic.once() == OK, "an answer without control")
    finally:
        with suppress(ProcessLookupError):  # on a busy machine `up` has replaced it by now
            os.kill(control, signal.SIGCONT)
    wait_ready(platform, COMPONENT, copies=2)


@pytest.mark.parametrize(
    "victim", first_alone(["control", "agent", "gateway-1", "objectstore", "model server"], 2)
)
def test_a_create_that_was_acknowledged_survives_the_death_of(
    platform: Platform, victim: str
) -> None:
    name = "made-while-" + victim.replace(" ", "-")
    create_component(platform, name, copies=1)
    if victim in PLATFORM_PROCESSES:
        platform.back(victim, platform.kill(victim))
    elif victim == "agent":
        os.kill(agent_pid(platform), signal.SIGKILL)
    else:
        pids = until(lambda: copies_of(platform, name), "the copy's process")
        os.kill(next(iter(pids.values())), signal.SIGKILL)
    wait_ready(platform, name, copies=1)
    until(lambda: Traffic(platform, name).once() == OK, "the new component answers")

    platform.boto3("sagemaker").delete_inference_component(InferenceComponentName=name)
    until(lambda: described(platform, name) is None, "the component is gone")
    assert not copies_of(platform, name)


def test_an_endpoint_is_deleted_while_it_is_being_created(platform: Platform) -> None:
    sagemaker = platform.boto3("sagemaker")
    sagemaker.create_endpoint(EndpointName="short-lived", EndpointConfigName=ENDPOINT)
    sagemaker.delete_endpoint(EndpointName="short-lived")

    def gone() -> bool:
        listed = sagemaker.list_endpoints(NameContains="short-lived")["Endpoints"]
        return not listed

    until(gone, "the endpoint is gone", within_s=10)


@pytest.mark.thorough
def test_everything_killed_at_once_comes_back_with_the_next_up(tmp_path: Path) -> None:
    root = tmp_path / "home"
    write_image_rule(root)
    with Platform(root) as platform:
        platform.may_log_tracebacks = True
        create_endpoint(platform)
        create_component(platform, COMPONENT, copies=1)
        wait_ready(platform, COMPONENT, copies=1)
        for pid in platform.processes():
            kill_if_alive(pid)  # some die with the one before them
        until(lambda: not platform.processes(), "all dead")
        platform.start()
        wait_ready(platform, COMPONENT, copies=1)
        assert until(lambda: Traffic(platform).once() == OK, "an answer")
