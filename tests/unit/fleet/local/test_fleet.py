import asyncio
from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.integration.agent_rig import instance

from hostelry.base.errors import HostelryError, RetryableError, TerminalError
from hostelry.fleet.local.fleet import KILL_COUNTS_S, LocalFleet, patience_s


@cases(
    "program, kind, cause",
    case("a killed one is tried again", "kill -9 $$", RetryableError, "signal 9"),
    case("a broken one", "echo broken; exit 3", TerminalError, "code 3: broken"),
)
def test_an_agent_that_ends_at_its_start(
    tmp_path: Path, program: str, kind: type[HostelryError], cause: str
) -> None:
    fleet = LocalFleet(tmp_path, ("/bin/sh", "-c", program, "sh"), "key")
    with pytest.raises(kind, match=cause):
        asyncio.run(fleet.launch(instance("i-1")))


NOW = 10_000.0


@cases(
    "kills, expected",
    case("an agent that was never killed has the first time", [], 60.0),
    case("one kill doubles the time", [NOW], 120.0),
    case("each kill doubles the time", [NOW - 900.0, NOW - 300.0], 240.0),
    case("the time is bounded", [NOW] * 40, 960.0),
    case("a kill of an hour ago does not count", [NOW - KILL_COUNTS_S], 60.0),
)
def test_an_agents_time_to_answer(kills: list[float], expected: float) -> None:
    assert patience_s(60.0, kills, NOW) == expected
