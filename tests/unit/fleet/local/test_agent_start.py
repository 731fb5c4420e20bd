"""Agents that end before they answer."""

import asyncio
from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.integration.agent_rig import instance

from hostelry.base.errors import HostelryError, RetryableError, TerminalError
from hostelry.fleet.local.fleet import LocalFleet


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
