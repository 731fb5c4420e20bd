from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.cli.status_text import (
    ai_benchmark_lines,
    disk_lines,
    duration,
    endpoint_lines,
    environment_lines,
    experiment_lines,
    gateway_host_lines,
    is_full,
    memory_text,
    process_lines,
    recommendation_lines,
)
from hostelry.home.platform_processes import PlatformProcess

NOW = 10_000.0
REASON = "the model server ended with code 3; its last lines:\n" + "\n".join(
    f"line {n}" for n in range(40)
)
CAPTURED = {
    "variant": "AllTraffic",
    "captured": 12,
    "dropped": 0,
    "objects": 2,
    "drop_cause": None,
    "upload_cause": None,
    "uploaded_at": NOW - 12,
}
SEEN_AT = 1_700_000_000.0
ONE: dict[str, Any] = {
    "name": "trial",
    "status": "Running",
    "status_reason": None,
    "endpoint": "e",
    "production": "now",
    "shadow": "next",
    "percent": 50,
    "start_at": SEEN_AT - 60,
    "end_at": SEEN_AT + 7200,
    "is_deployed": True,
    "promotes": False,
    "deadline_at": None,
}


@cases(
    "free_bytes, free_files, files, full, text",
    case("room", 10 * 1024**3, 9, 10, False, ""),
    case("a filesystem that counts no files", 10 * 1024**3, 0, 0, False, ""),
    case("little room", 400 * 1024**2, 9, 10, False, "has 400 MiB left"),
    case("no byte", 0, 9, 10, True, "The disk of /h is full (0 MiB free)"),
    case("no file", 10 * 1024**3, 0, 10, True, "and no further file free"),
)
def test_a_disk_without_room_is_shown(
    free_bytes: int, free_files: int, files: int, full: bool, text: str
) -> None:
    disk = {"free_bytes": free_bytes, "free_files": free_files, "files": files}
    shown = "\n".join(disk_lines("/h", disk))
    assert (is_full(disk), bool(shown)) == (full, bool(text))
    assert text in shown


def endpoint(**changes: Any) -> dict[str, Any]:
    return {
        "name": "chat",
        "status": "InService",
        "config": "chat-config",
        "created_at": NOW - 3725,
        "failure_reason": None,
        "components": [
            {"name": "base", "status": "InService", "desired_copies": 2, "ready_copies": 1},
            {"name": "pirate", "status": "Failed", "base": "base", "failure_reason": "rank 512"},
        ],
        "instances": [
            {
                "id": "i-1",
                "type": "ml.g5.12xlarge",
                "variant": "AllTraffic",
                "state": "running",
                "cpus": 48,
                "memory_bytes": 192 * 1024**3,
                "accelerators": 4,
                "problem": None,
            }
        ],
        "copies": [
            {
                "id": "c-1",
                "owner": "component/base",
                "instance": "i-1",
                "phase": "ready",
                "reserved": {"cpus": 2.0, "memory_bytes": 1024**3, "accelerators": 1},
                "pid": 77,
                "memory_bytes": 512 * 1024**2,
                "start_kind": "warm",
                "start_s": 0.52,
                "adapters": [{"id": "pirate@1", "phase": "failed", "reason": "rank 512"}],
            },
            {
                "id": "c-2",
                "owner": "component/base",
                "instance": "i-1",
                "phase": "failed",
                "reason": REASON,
                "restarts": 3,
                "variables_left_out": ["HF_HOME", "LD_PRELOAD"],
            },
        ],
        **changes,
    }


def test_an_endpoint_with_all_that_belongs_to_it() -> None:
    lines = endpoint_lines([endpoint()], NOW)
    assert lines[:9] == [
        "endpoint chat  InService  config chat-config  age 1h02m",
        "  component base  InService  base  1/2 ready",
        "  component pirate  Failed  adapter of base",
        "    rank 512",
        "  instance i-1  ml.g5.12xlarge  variant AllTraffic  running  "
        "declared 48 CPUs, 192.0 GiB, 4 accelerators; "
        "reserved 2 CPUs, 1.0 GiB, 1 accelerator; in use 512 MiB",
        "    copy c-1  component/base  ready  pid 77  512 MiB  warm start 0.5 s",
        "      adapter pirate@1  failed",
        "        rank 512",
        "    copy c-2  component/base  failed  restarts 3",
    ]
    assert "      variables of its Environment not passed on: HF_HOME, LD_PRELOAD" in lines


def test_a_reason_is_printed_whole() -> None:
    lines = endpoint_lines([endpoint()], NOW)
    assert [line.strip() for line in lines if line.strip() in REASON.splitlines()] == (
        REASON.splitlines()
    )


@cases(
    "changes, line",
    case("a failure", {"status": "Failed", "failure_reason": "no capacity"}, "  no capacity"),
    case(
        "an update under way",
        {"pending_config": "next"},
        "endpoint chat  InService  config chat-config -> next  age 1h02m",
    ),
    case(
        "an update on trial",
        {"bake": {"config_before": "old", "since": NOW, "going_back": None}},
        "endpoint chat  InService  config old -> chat-config (on trial)  age 1h02m",
    ),
    case(
        "an update that goes back",
        {"bake": {"config_before": "old", "since": NOW, "going_back": "an alarm"}},
        "  going back: an alarm",
    ),
    case(
        "an update in steps",
        {"pending_config": "next", "progress": "step 1 of 2: 10 % of traffic"},
        "  update: step 1 of 2: 10 % of traffic",
    ),
    case(
        "an update in steps that goes back",
        {"shift": {"step": 1, "since": NOW, "failure": "an alarm"}},
        "  going back: an alarm",
    ),
    case(
        "copies whose instance is gone",
        {"instances": []},
        "    copy c-1  component/base  ready  pid 77  512 MiB  warm start 0.5 s",
    ),
)
def test_what_else_may_be(changes: dict[str, Any], line: str) -> None:
    assert line in endpoint_lines([endpoint(**changes)], NOW)


@cases(
    "reason, shown",
    case(
        "ready again",
        None,
        ["ended 3m00s ago: The model server was ended by signal 9.", "| loading", "| out of luck"],
    ),
    case("not ready: its reason says it", "It ended again.", ["It ended again."]),
)
def test_how_a_copy_ended_last(reason: str | None, shown: list[str]) -> None:
    end = {
        "at": NOW - 180,
        "cause": "The model server was ended by signal 9.",
        "log_tail": "loading\nout of luck",
    }
    copy = {"id": "c-1", "phase": "ready", "restarts": 2, "reason": reason, "last_end": end}
    (copy_line, *lines) = endpoint_lines([endpoint(instances=[], copies=[copy])], NOW)[4:-1]
    assert copy_line == "    copy c-1  -  ready  restarts 2"
    assert [line.strip() for line in lines] == shown


@pytest.mark.parametrize(
    ("capture", "shown"),
    [
        pytest.param({"is_enabled": False, "variants": []}, ["  capture Stopped  20 % to s3://b"]),
        pytest.param(
            {"is_enabled": True, "variants": [CAPTURED]},
            [
                "  capture Started  20 % to s3://b",
                "    AllTraffic  12 captured, 0 dropped, 2 objects, last upload 12s ago",
            ],
        ),
        pytest.param(
            {
                "is_enabled": True,
                "variants": [
                    {
                        **CAPTURED,
                        "dropped": 3,
                        "drop_cause": "full",
                        "upload_cause": "no bucket",
                        "uploaded_at": None,
                    }
                ],
            },
            [
                "  capture Started  20 % to s3://b",
                "    AllTraffic  12 captured, 3 dropped, 2 objects, nothing uploaded yet",
                "      last drop: full",
                "      uploads fail: no bucket",
            ],
        ),
    ],
    ids=["switched off", "with its counts", "with what is wrong"],
)
def test_data_capture_is_shown(capture: dict[str, Any], shown: list[str]) -> None:
    given = {"percent": 20, "destination": "s3://b", **capture}
    lines = endpoint_lines([endpoint(capture=given)], NOW)
    assert lines[1 : 1 + len(shown)] == shown


def test_no_endpoints() -> None:
    assert endpoint_lines([], NOW) == ["No endpoints."]


def test_processes_are_aligned_and_a_missing_one_is_named() -> None:
    running = PlatformProcess(name="up", pid=1234, port=8787, uptime_s=65, memory_bytes=10**8)
    assert process_lines([running, PlatformProcess(name="control")]) == [
        "PROCESS  PID   PORT  UPTIME       MEMORY",
        "up       1234  8787  1m05s        95 MiB",
        "control  -     -     not running  -",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (3599, "59m59s"),
        (7500, "2h05m"),
        (100_000, "1d03h"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(0, "0 MiB"), (1024**3 - 1, "1024 MiB"), (1024**3, "1.0 GiB")]
)
def test_memory_text(size_bytes: int, text: str) -> None:
    assert memory_text(size_bytes) == text


def crowd() -> dict[str, Any]:
    """An endpoint with two bases, and 300 adapters of one of them: most well, some not."""
    adapters = [
        {"name": f"customer-{n:03}", "status": "InService", "base": "base"} for n in range(300)
    ]
    adapters[7] |= {"status": "Failed", "failure_reason": "rank 512"}
    for n in range(20, 40):
        adapters[n] |= {"status": "Failed", "failure_reason": "no such object"}
    on_copy = [{"id": f"{it['name']}@1", "phase": "ready"} for it in adapters]
    on_copy[7] |= {"phase": "failed", "reason": "rank 512"}
    return endpoint(
        components=[
            {"name": "base", "status": "InService", "desired_copies": 1, "ready_copies": 1},
            *adapters,
            {"name": "zebra", "status": "Creating", "desired_copies": 2, "ready_copies": 0},
        ],
        copies=[{"id": "c-1", "owner": "component/base", "instance": "i-1", "adapters": on_copy}],
    )


def test_many_adapters_that_fare_alike_are_one_line() -> None:
    lines = endpoint_lines([crowd()], NOW)
    assert lines[1:8] == [
        "  component base  InService  base  1/1 ready",
        "  279 components customer-000 ... customer-299  InService  adapters of base",
        "  component customer-007  Failed  adapter of base",
        "    rank 512",
        "  20 components customer-020 ... customer-039  Failed  adapters of base",
        "    no such object",
        "  component zebra  Creating  base  0/2 ready",
    ]
    assert lines[-4:-1] == [
        "      299 adapters  ready",
        "      adapter customer-007@1  failed",
        "        rank 512",
    ]


def test_an_endpoint_that_is_asked_for_is_shown_whole() -> None:
    lines = endpoint_lines([crowd()], NOW, most_alike=1000)
    assert sum(line.startswith("  component customer-") for line in lines) == 300
    assert sum(line.startswith("      adapter customer-") for line in lines) == 300


def test_adapters_whose_base_is_gone_are_shown() -> None:
    lone = {"name": "lone", "status": "Failed", "base": "gone"}
    assert "  component lone  Failed  adapter of gone" in endpoint_lines(
        [endpoint(components=[lone])], NOW
    )


def host(name: str, seen_ago_s: float, version: str = "1.2") -> dict[str, Any]:
    address = f"http://{name}:1"
    return {"host_id": name, "address": address, "version": version, "seen_ago_s": seen_ago_s}


@cases(
    "hosts, lines",
    case("none where none reports itself", [], []),
    case(
        "one that is silent says since when",
        [host("h-1", 0.8), host("h-22", 200.0, "")],
        [
            "gateways  h-1   http://h-1:1   version 1.2",
            "gateways  h-22  http://h-22:1  version unknown  last seen 3m20s ago",
        ],
    ),
)
def test_status_shows_each_host(hosts: list[dict[str, Any]], lines: list[str]) -> None:
    assert gateway_host_lines(hosts) == lines


@cases(
    "ready, starting, provisioned, used_at, expected",
    case("at zero", 0, 0, 0, None,
        "  serverless main  0 of at most 5 environments ready, 1024 MB each"),
    case("starting", 1, 2, 1, 970.0,
        "  serverless main  1 of at most 5 environments ready, 2 starting, 1 provisioned,"
        " 1024 MB each  last used 30s ago"),
)  # fmt: skip
def test_what_a_serverless_variant_is_doing(
    ready: int, starting: int, provisioned: int, used_at: float | None, expected: str
) -> None:
    serverless = {
        "memory_mb": 1024,
        "max_concurrency": 5,
        "provisioned_concurrency": provisioned,
        "ready": ready,
        "starting": starting,
    }
    endpoint = {
        "variants": [{"name": "main", "serverless": serverless}],
        "copies": [{"last_used_at": used_at}],
    }
    assert environment_lines(endpoint, 1000.0) == [expected]


@cases(
    "changes, step",
    case("runs", {}, "ends in 2h"),
    case("waits", {"status": "Created", "start_at": SEEN_AT + 90}, "starts in 1m30s, ends in 2h"),
    case(
        "starts",
        {"status": "Starting", "deadline_at": SEEN_AT + 600},
        "the shadow comes up, given up in 10m00s; ends in 2h",
    ),
    case("begins", {"status": "Starting", "is_deployed": False}, "its endpoint is changed"),
    case("updates", {"status": "Updating"}, "its endpoint takes the update"),
    case("promotes", {"status": "Stopping", "promotes": True}, "the shadow is promoted"),
    case("stops", {"status": "Stopping"}, "the shadow is removed"),
)
def test_a_line_shows_the_share_and_the_step(changes: dict[str, Any], step: str) -> None:
    line = experiment_lines([{**ONE, **changes}], SEEN_AT)[0]
    head = f"experiment trial  {changes.get('status', 'Running')}  endpoint e  50 % of now to next"
    assert line.startswith(f"{head}  {step}")


def test_a_recommendations_job_has_its_steps_under_way() -> None:
    job = {
        "name": "sizes",
        "status": "IN_PROGRESS",
        "num_steps": 4,
        "num_over": 1,
        "under_way": ["Step 2 (ml.m5.large, A=1\n2)"],
        "until_at": SEEN_AT + 90,
    }
    assert recommendation_lines([job], SEEN_AT) == [
        "recommendations job sizes  IN_PROGRESS  1 of 4 steps are over  at most 1m30s left",
        "  Step 2 (ml.m5.large, A=1",
        "",
    ]
    (of_llm, *_) = recommendation_lines([{**job, "is_ai": True}], SEEN_AT)
    assert of_llm.startswith("AI recommendation job sizes  IN_PROGRESS")
    waiting = {**job, "status": "PENDING", "under_way": [], "until_at": None}
    assert recommendation_lines([waiting], SEEN_AT)[0].endswith("1 of 4 steps are over")


def test_an_ai_benchmark_job_has_its_endpoint_and_its_time() -> None:
    job = {"name": "chat", "status": "InProgress", "endpoint": "ep", "deadline_at": SEEN_AT + 90}
    assert ai_benchmark_lines([job], SEEN_AT) == [
        "AI benchmark job chat  InProgress  endpoint ep  at most 1m30s left",
        "",
    ]
    (shown, _) = ai_benchmark_lines([{**job, "deadline_at": None}], SEEN_AT)
    assert shown.endswith("endpoint ep")


def test_only_what_is_not_over_of_the_endpoints_asked_for() -> None:
    over = [{**ONE, "status": it} for it in ("Completed", "Cancelled")]
    assert experiment_lines(over, SEEN_AT) == []
    assert experiment_lines([ONE], SEEN_AT, ["other"]) == []
    lines = experiment_lines([{**ONE, "status_reason": "why"}], SEEN_AT, ["e"])
    assert lines[1:] == ["  why", ""]
