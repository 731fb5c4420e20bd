"""Needs of a control on a further host, and names of hosts."""

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.errors import HostelryError, RetryableError, TerminalError
from hostelry.cluster.further_control import explain_unable, machine
from hostelry.cluster.join_token import (
    STARTS_WITHIN_S,
    JoinedHost,
    build_control_id,
    check_name,
    get_host_id,
    live_hosts,
)
from hostelry.home.home import UpConfig

ON_RAY = UpConfig(
    control_port=1,
    fleet="ray",
    store_url="postgresql://u:secret@db/h",
    s3_endpoint="http://nas:9000",
)


@cases(
    "changes, reason",
    case("Ray, a database and an S3 that every host reaches", {}, None),
    case("records in a file", {"store_url": None}, "--store postgresql://"),
    case("instances on the first host", {"fleet": "local"}, "--fleet ray"),
    case("objects on the first host", {"s3_endpoint": None}, "--s3-endpoint URL"),
    case("S3 on loopback", {"s3_endpoint": "http://[::1]:9"}, "--s3-endpoint names"),
    case("a database on it", {"store_url": "postgresql://u@localhost/h"}, "--store names"),
    case("one behind a socket", {"store_url": "postgresql:///h"}, "--store names"),
    case("another socket", {"store_url": "postgresql:///h?host=/run/p"}, "--store names"),
    case("a host as a parameter", {"store_url": "postgresql:///h?host=db"}, None),
    case("Ray on loopback", {"ray_address": "127.0.0.1:6379"}, "--ray-address names"),
)
def test_what_a_control_on_another_machine_needs(
    changes: dict[str, Any], reason: str | None
) -> None:
    found = explain_unable(replace(ON_RAY, **changes), is_same_machine=False)
    assert (found is None) is (reason is None), found
    assert (reason or "") in (found or "")
    assert "secret" not in (found or "")


def test_a_control_on_the_same_machine_needs_a_database_alone() -> None:
    local = replace(ON_RAY, fleet="local", s3_endpoint=None, store_url="postgresql:///h")
    assert explain_unable(local, is_same_machine=True) is None
    assert explain_unable(replace(local, store_url=None), is_same_machine=True) is not None


def test_processes_of_one_machine_agree_on_it() -> None:
    code = "from hostelry.cluster.further_control import machine; print(machine())"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == machine()


def host(host_id: str, joined_at: float) -> JoinedHost:
    return JoinedHost(role="gateway", host_id=host_id, joined_at=joined_at)


@cases(
    "holder, live, raised",
    case("nobody's", None, set(), None),
    case("its own, as it joins again", host("me", 999.0), {"me"}, None),
    case("of one that runs", host("other", 0.0), {"other"}, TerminalError),
    case("of one that is gone", host("other", 0.0), {"me"}, None),
    case("of one that is to start", host("other", 999.0), set(), TerminalError),
    case("of one of which none knows", host("other", 0.0), None, RetryableError),
    case("nobody's, whoever runs", None, None, None),
)
def test_whose_a_name_is(
    holder: JoinedHost | None, live: set[str] | None, raised: type[HostelryError] | None
) -> None:
    asked = host("me", STARTS_WITHIN_S + 950.0)
    if raised is None:
        check_name("name", holder, asked, live)
        return
    with pytest.raises(raised, match="name"):
        check_name("name", holder, asked, live)


def test_a_controls_id_names_its_host_and_one_process() -> None:
    one, other = (build_control_id("my-host", "a1b2c3d4e5f60718", os.getpid()) for _ in range(2))
    assert one != other
    assert one.startswith(f"my-host-{os.getpid()}-")
    assert get_host_id(one) == "a1b2c3d4e5f60718"
    assert get_host_id(build_control_id("my-host", "", 7)) == ""
    members = {"members": [{"id": one}, {"id": "first-7-abcdef"}]}
    assert live_hosts({"g"}, members) == {"g", "a1b2c3d4e5f60718", ""}
    assert live_hosts(None, members) is None
