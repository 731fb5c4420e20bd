"""`up` is killed at any moment. Its processes continue to serve, and the next `up` adopts them."""

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.integration.drill import (
    COMPONENT,
    Traffic,
    copies_of,
    create_component,
    create_endpoint,
    wait_ready,
    write_image_rule,
)
from tests.integration.platform import Platform, kill_if_alive, until
from tests.integration.test_gateway_workers import knocking
from tests.selection import first_alone

import hostelry
from hostelry.base.proc import arguments, process_stat, uptime_s
from hostelry.fleet.records import instance_folders
from hostelry.home.run_file import live_run_files
from hostelry.processes.supervision import STEADY_S
from hostelry_lab.catalogue import BY_NAME
from hostelry_lab.context import drill_context
from hostelry_lab.drill_text import outcome_lines
from hostelry_lab.observer import PlatformObserver

pytestmark = [pytest.mark.integration, pytest.mark.slow]
SEED = int(os.environ.get("HOSTELRY_SEED", "0")) or random.SystemRandom().randrange(10**6)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    root = tmp_path_factory.mktemp("supervisor") / "home"
    write_image_rule(root)
    with Platform(root, "--gateway-workers", "2") as running:
        create_endpoint(running)
        create_component(running, COMPONENT, copies=2)
        wait_ready(running, COMPONENT, copies=2)
        yield running


def services(platform: Platform) -> dict[str, int]:
    """The pid of each live process but `up` and the watcher."""
    records = live_run_files(platform.home)
    return {it.name: it.pid for it in records if it.name not in ("up", "watcher")}


@contextmanager
def all_goes_on(platform: Platform) -> Iterator[Traffic]:
    """For the block: no call fails, no connection is refused, no process is another."""
    before, copies = services(platform), copies_of(platform, COMPONENT)
    with Traffic(platform).flowing() as traffic, knocking(platform) as knocks:
        yield traffic
        traffic.goes_on()
    assert traffic.errors == set(), traffic.outcomes
    assert set(knocks) == {"answered"}, knocks
    assert services(platform) == before
    assert copies_of(platform, COMPONENT) == copies


def has_forked_an_interpreter(up: int) -> bool:
    """True if the interpreter of services is a fork of `up`, not a separate program."""
    children = Path(f"/proc/{up}/task/{up}/children").read_text().split()
    found = [arguments(int(it)) for it in children]
    (interpreter,) = (it for it in found if "hostelry.fleet.launch.warm_process" in it)
    return "--socket-fd" not in interpreter


def kill_both(platform: Platform) -> None:
    """No watcher, no supervisor: the watcher first, and `up` before it can start another one."""
    watcher, up = platform.pid("watcher"), platform.pid("up")
    kill_if_alive(watcher)
    kill_if_alive(up)
    until(lambda: platform.running("up") is None, "up is dead")


def test_a_killed_up_is_started_again_and_adopts_everything(platform: Platform) -> None:
    with all_goes_on(platform):
        assert has_forked_an_interpreter(platform.pid("up"))
        watcher, old = platform.pid("watcher"), platform.kill("up")
        platform.back("up", old)
        until(lambda: "adopted " in platform.log("up"), "it says so")
    assert platform.pid("watcher") == watcher
    assert has_forked_an_interpreter(platform.pid("up"))
    shown = json.loads(platform.cli("status", "--json").stdout)
    assert all(it["pid"] for it in shown["processes"])


@pytest.mark.thorough
def test_up_is_killed_again_and_again_also_while_it_adopts(platform: Platform) -> None:
    moments = random.Random(SEED)
    print(f"HOSTELRY_SEED={SEED}")
    with all_goes_on(platform):
        for _ in range(4):
            old = platform.kill("up")
            platform.back("up", old)
            time.sleep(moments.uniform(0.0, 1.0))
        until(lambda: platform.running("up"), "it runs in the end")
    until(lambda: platform.running("watcher"), "and so does the watcher")


def test_the_two_keep_each_other_running(platform: Platform) -> None:
    until(lambda: platform.running("up"), "up runs")
    platform.back("watcher", platform.kill("watcher"))
    platform.back("up", platform.kill("up"))


def test_both_are_killed_and_all_serves_until_the_next_up(platform: Platform) -> None:
    with all_goes_on(platform) as traffic:
        kill_both(platform)
        traffic.goes_on()
        shown = platform.cli("status", code=1).stdout
        assert "No supervisor: processes keep running" in shown
        assert f"component {COMPONENT}  InService" in shown
        platform.exec(["true"])
        platform.start()
        until(lambda: platform.running("watcher"), "there is a watcher")


def age_s(pid: int) -> float:
    """How long a process has run."""
    stat = process_stat(pid)
    return 0.0 if stat is None else uptime_s(stat)


@pytest.mark.thorough
def test_only_what_died_or_hangs_meanwhile_is_started_again(platform: Platform) -> None:
    before = services(platform)
    old_enough = STEADY_S + 1  # a younger one would be taken for one that still starts
    until(lambda: age_s(before["control"]) > old_enough, "control has run for a while", 40)
    kill_both(platform)
    platform.kill("gateway-1")
    platform.kill("control", signal.SIGSTOP)  # it hangs, which its new supervisor finds out
    platform.start()
    after = services(platform)
    assert {name for name, pid in before.items() if after[name] != pid} == {"gateway-1", "control"}
    assert Traffic(platform).once() == "ok"
    # Adopted processes are supervised like started ones.
    platform.back("gateway-2", platform.kill("gateway-2"))
    assert "gateway-2 ended (its exit code is unknown, as it was adopted)" in platform.log("up")


def test_other_options_replace_only_the_services_that_they_concern(platform: Platform) -> None:
    before = services(platform)
    kill_both(platform)
    with Traffic(platform).flowing() as traffic, knocking(platform) as knocks:
        platform.cli("up", "--detach", *platform.port_flags(), "--gateway-workers", "3")
        traffic.goes_on()
    # A connection that a client keeps may be closed in the moment of its next request.
    assert traffic.errors <= {"ConnectionClosedError"}, traffic.outcomes
    assert set(knocks) <= {"answered", "cut off"}, knocks
    after = services(platform)
    kept = {it for it in after if before.get(it) == after[it]}
    assert kept == {"jobs", "console", "control", "s3door", "objectstore"}
    assert {"gateway-1", "gateway-2", "gateway-3"} <= set(after)
    kill_both(platform)
    platform.start()  # two workers again: the third is ended
    until(lambda: "gateway-3" not in services(platform), "the third worker ends")
    assert Traffic(platform).once() == "ok"


def test_a_process_that_no_run_file_names_is_found_by_its_mark(platform: Platform) -> None:
    old = platform.pid("gateway-1")
    kill_both(platform)
    (platform.home.run / "gateway-1.json").unlink()
    platform.start()
    assert platform.pid("gateway-1") != old
    until(lambda: old not in platform.processes(), "the old one is ended")
    log = platform.log("gateway-1")
    assert log.rindex("listening at") < log.rindex("closing: "), "it served until another one did"


def test_the_drill(platform: Platform, capsys: pytest.CaptureFixture[str]) -> None:
    until(lambda: platform.running("watcher"), "there is a watcher")
    observer = PlatformObserver(
        home=platform.home, config=platform.config, credentials=platform.credentials
    )
    with drill_context(observer, None, COMPONENT, 4, lambda _: None) as context:
        outcome = BY_NAME["supervisor-kill"].outcome(context)
    with capsys.disabled():
        print("", *outcome_lines(outcome), sep="\n")
    assert not outcome.missed, outcome
    assert not outcome.lost, outcome


NEXT_VERSION = "99.0.0"


def next_version(folder: Path, number: str = NEXT_VERSION) -> Path:
    """A folder for PYTHONPATH with this package, under another version's number."""
    package = Path(hostelry.__file__).parent
    shutil.copytree(package, folder / package.name)  # compiled modules fit sources of this age
    init = folder / package.name / "__init__.py"
    init.write_text(init.read_text().replace(hostelry.__version__, number))
    return folder


def agents(platform: Platform) -> list[int]:
    """The pid of each instance's agent."""
    records = [it.load_agent() for it in instance_folders(platform.home.instances)]
    return [it.process.pid for it in records if it is not None]


def test_the_next_version_takes_over_under_traffic_and_restarts_no_copy(
    platform: Platform, tmp_path: Path
) -> None:
    if platform.running("watcher") is None:
        platform.start()
    before, copies, old_agents = (
        services(platform),
        copies_of(platform, COMPONENT),
        agents(platform),
    )
    platform.environment["PYTHONPATH"] = str(next_version(tmp_path))
    try:
        with Traffic(platform).flowing() as traffic, knocking(platform) as knocks:
            kill_both(platform)
            platform.start()
            traffic.goes_on()
            # Its control and gateway work with agents of the version before.
            create_component(platform, "skewed", copies=1)
            wait_ready(platform, "skewed", copies=1)
            assert agents(platform) == old_agents
            upgraded = json.loads(platform.cli("upgrade", "--json").stdout)
            traffic.goes_on()
        health = httpx.get(f"{platform.config.gateway_url}/health", trust_env=False).json()
        assert health["version"] == upgraded["version"] == NEXT_VERSION
    finally:
        del platform.environment["PYTHONPATH"]
    after = services(platform)
    assert {it for it in before if before[it] == after[it]} == set(), "each is of the next version"
    assert set(upgraded["adopted"]) == set(after), "it had taken over already, but for agents"
    assert len(upgraded["agents"]) == len(old_agents)
    assert set(agents(platform)).isdisjoint(old_agents)
    assert copies_of(platform, COMPONENT) == copies
    # A connection that a client keeps may be closed in the moment of its next request.
    assert traffic.errors <= {"ConnectionClosedError"}, traffic.outcomes
    assert set(knocks) == {"answered"}, knocks


@pytest.mark.thorough
def test_the_version_before_takes_over_again_with_one_command(platform: Platform) -> None:
    copies = copies_of(platform, COMPONENT)
    with Traffic(platform).flowing() as traffic, knocking(platform) as knocks:
        upgraded = json.loads(platform.cli("upgrade", "--json").stdout)
        traffic.goes_on()
    assert upgraded["version"] == hostelry.__version__
    assert {"gateway-1", "gateway-2", "control", "jobs"} <= set(upgraded["replaced"])
    assert copies_of(platform, COMPONENT) == copies
    assert traffic.errors <= {"ConnectionClosedError"}, traffic.outcomes
    assert set(knocks) <= {"answered", "cut off"}, knocks


@pytest.mark.parametrize("delay_s", first_alone([0.0, 0.6, 1.2]))
def test_down_right_after_leaves_nothing(platform: Platform, delay_s: float) -> None:
    """The watcher may be starting another `up` in that moment."""
    if platform.running("up") is None:
        platform.start()
    platform.kill("up")
    time.sleep(delay_s)
    platform.down()
    assert platform.processes() == []
    assert not platform.home.kept.exists()


class WithDefaults(Platform):
    """A hostelry without port flags."""

    def port_flags(self) -> list[str]:
        """No flag."""
        return []


@pytest.mark.thorough
def test_homes_beside_each_other_find_ports_and_keep_them(tmp_path: Path) -> None:
    with WithDefaults(tmp_path / "a") as one, WithDefaults(tmp_path / "b") as two:
        ports = {it.home: (it.config.gateway_port, it.config.s3_port) for it in (one, two)}
        assert len({port for pair in ports.values() for port in pair}) == 4
        assert two.config.gateway_port != 8787
        assert "is another program's: the gateway is at" in two.log("up")
        for each in (one, two):
            assert each.boto3("sts").get_caller_identity()["Account"]
            shown = json.loads(each.cli("status", "--json").stdout)
            assert shown["home"] == str(each.home.root)
            assert {p["pid"] for p in shown["processes"]} == {
                *services(each).values(),
                each.pid("up"),
                each.pid("watcher"),
            }
        two.down()
        assert one.running("up")
        two.start()
        assert (two.config.gateway_port, two.config.s3_port) == ports[two.home]
