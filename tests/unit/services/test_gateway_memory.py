from pathlib import Path

import pytest

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.clock import ManualClock
from hostelry.domain.routes import CopyRoute
from hostelry.domain.scope import Scope
from hostelry.home.home import Home, UpConfig
from hostelry.routing.session import copy_mark
from hostelry.services.gateway_memory import GatewayMemory, open_own_memory, open_shared_memory

SCOPE = Scope("111122223333", "us-west-2")
COPIES = tuple(CopyRoute(id=f"c-{n}", address=f"http://127.0.0.1:{n}") for n in range(3))
NEW = InvokeRequest(endpoint_name="talks", stream=False, session_id="NEW_SESSION")
OLD = InvokeRequest(endpoint_name="talks", stream=False, session_id="s-1")
OPENED = {"x-amzn-sagemaker-new-session-id": "s-1"}


def config_of(num_workers: int) -> UpConfig:
    return UpConfig(gateway_port=1, control_port=2, gateway_workers=num_workers)


def memories(root: Path, num_workers: int) -> tuple[GatewayMemory, GatewayMemory]:
    """The memories of two workers of one gateway."""
    home, config = Home(root), config_of(num_workers)
    home.run.mkdir()
    now = ManualClock().now
    return open_shared_memory(home, config, 1, now), open_shared_memory(home, config, 2, now)


def test_workers_know_each_others_sessions_and_adapters(tmp_path: Path) -> None:
    first, second = memories(tmp_path, num_workers=2)
    first.sessions.note(SCOPE, NEW, COPIES[1], OPENED)
    assert second.sessions.holder(SCOPE, OLD) == copy_mark("c-1")
    first.places.choose(COPIES[2:], [0], "pirate")
    assert second.places.choose(COPIES, [0, 0, 0], "pirate").index == 2


def test_a_single_worker_finds_its_sessions_again_after_it_died(tmp_path: Path) -> None:
    first, again = memories(tmp_path, num_workers=1)
    first.sessions.note(SCOPE, NEW, COPIES[1], OPENED)
    assert again.sessions.holder(SCOPE, OLD) == copy_mark("c-1")


def test_where_nothing_can_be_shared_each_worker_remembers_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").write_text("no folder")
    now = ManualClock().now
    alone = open_shared_memory(Home(tmp_path), config_of(2), 1, now)
    assert "each gateway worker has its own memory" in caplog.text
    alone.sessions.note(SCOPE, NEW, COPIES[1], OPENED)
    assert alone.sessions.holder(SCOPE, OLD) == copy_mark("c-1")
    assert open_own_memory(now).sessions.holder(SCOPE, OLD) is None
