import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.proc import PROC, process_stat
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import (
    ComponentRoute,
    CopyRoute,
    EndpointRoute,
    RouteSnapshot,
    VariantRoute,
)
from hostelry.domain.scope import Scope
from hostelry.fleet.host.processes import send
from hostelry.home.home import Home, UpConfig, new_credentials
from hostelry.home.run_file import RunFile, save_run_file
from hostelry_lab.observer import (
    PlatformObserver,
    RouteWatch,
    copies_in,
    copy_addresses,
    identity_of,
    left_at,
    ready_pids,
    records_in,
    stop_processes,
    wait_for,
)

STATE = {
    "endpoints": [
        {
            "name": "chat",
            "components": [{"name": "base", "desired_copies": 2}],
            "instances": [{"id": "i-1"}],
            "copies": [
                {"id": "c-1", "phase": "ready", "pid": 11},
                {"id": "c-2", "phase": "unhealthy", "pid": 12},
                {"id": "c-3", "phase": "ready", "pid": None},
            ],
        }
    ]
}


def test_what_a_state_holds() -> None:
    assert [it["id"] for it in copies_in(STATE)] == ["c-1", "c-2", "c-3"]
    assert ready_pids(STATE) == {"c-1": 11}
    assert records_in(STATE) == {
        "endpoint chat",
        "component chat/base with 2 copies",
        "instance i-1",
        "copy c-1",
        "copy c-2",
        "copy c-3",
    }


def test_waiting_takes_the_first_answer_or_none() -> None:
    answers = iter([None, None, "here"])
    assert wait_for(lambda: next(answers), within_s=10) == "here"
    assert wait_for(lambda: None, within_s=0) is None


def observer(root: Path) -> PlatformObserver:
    home = Home(root)
    home.make()
    credentials = new_credentials("123456789012", "us-west-2", "AKIATEST", "secret")
    return PlatformObserver(home=home, config=UpConfig(control_port=9), credentials=credentials)


def test_a_platform_that_does_not_answer_has_no_state_and_no_routes(tmp_path: Path) -> None:
    there = observer(tmp_path)
    with RouteWatch(there).watching() as routes:
        assert there.state() is None
    assert routes.left_at("c-1", since=0.0) is None
    assert there.agents() == {}
    assert there.services("control") == []


@cases(
    "seen, expected",
    case("it had no route", [(1, {"c": "a"}), (3, {}), (4, {"c": "b"})], 3),
    case("it has another", [(1, {"c": "a"}), (3, {"c": "a"}), (4, {"c": "b"})], 4),
    case("it has its route still", [(1, {"c": "a"}), (3, {"c": "a"})], None),
    case("moved before", [(1, {"c": "z"}), (1.5, {"c": "a"}), (3, {"c": "a"})], None),
    case("it came then", [(1, {}), (3, {"c": "a"})], None),
    case("the first look came late", [(3, {"c": "a"}), (4, {"d": "a"})], 4),
)
def test_when_a_copy_left_the_routes(
    seen: list[tuple[float, dict[str, str]]], expected: float | None
) -> None:
    assert left_at(seen, "c", since=2) == expected


def test_addresses_of_copies_of_variants_and_components() -> None:
    routing = RoutingStrategy.RANDOM
    at = (CopyRoute(id="c-1", address="http://h:1"),)
    variant = VariantRoute(name="v", weight=1, routing=routing, copies=at)
    other = (CopyRoute(id="c-2", address="http://h:2"),)
    component = ComponentRoute(name="x", variant_name="v", routing=routing, copies=other)
    endpoint = EndpointRoute(
        scope=Scope("111122223333", "us-west-2"),
        name="e",
        takes_components=True,
        variants=(variant,),
        components=(component,),
    )
    found = copy_addresses(RouteSnapshot(version="1", endpoints=(endpoint,)))
    assert found == {"c-1": "http://h:1", "c-2": "http://h:2"}


@pytest.fixture
def sleeper() -> "Iterator[subprocess.Popen[bytes]]":
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def state_of(pid: int) -> str:
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]


def until_state(pid: int, expected: str) -> bool:
    return wait_for(lambda: True if state_of(pid) == expected else None, within_s=10) is True


def test_what_was_stopped_goes_on_after_the_block_whatever_ends_it(
    sleeper: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    there = observer(tmp_path)
    save_run_file(there.home, "control", sleeper.pid, 1)
    victims = [identity_of(it) for it in there.services("control")]

    def interrupted() -> None:
        with stop_processes(victims):
            assert until_state(sleeper.pid, "T")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert until_state(sleeper.pid, "S")


def test_another_process_with_a_recorded_pid_is_not_signalled(
    sleeper: "subprocess.Popen[bytes]",
) -> None:
    stat = process_stat(sleeper.pid)
    assert stat is not None
    earlier = RunFile(name="control", pid=stat.pid, start_ticks=stat.start_ticks - 1, port=1)
    with stop_processes([identity_of(earlier)]):
        assert state_of(sleeper.pid) != "T"
    send([identity_of(earlier)], signal.SIGKILL)
    assert sleeper.poll() is None
