"""Addresses of the controls, as a host of control keeps them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hostelry.cluster import known_controls
from hostelry.cluster.known_controls import keep_controls
from hostelry.home.home import Home, UpConfig

OWN, SECOND, THIRD = (f"https://control@10.0.0.{it}:7443" for it in (2, 3, 4))
CONFIG = UpConfig(control_port=1, cluster_host="10.0.0.2", cluster_port=7443)


async def test_controls_that_come_are_known_and_no_answer_forgets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_controls, "PAUSE_S", 0.01)
    home, third = Home(tmp_path), [OWN, SECOND, THIRD]
    answers = iter([[OWN], [OWN, SECOND], [], third, [OWN, THIRD]])
    seen: list[tuple[str, ...]] = []
    is_over, loops = asyncio.Event(), list[asyncio.AbstractEventLoop]()

    def document() -> dict[str, Any]:
        seen.append(known_controls.list_known_controls(home, CONFIG))
        controls = next(answers, None)
        if controls is None:
            loops[0].call_soon_threadsafe(is_over.set)
        return {"controls": controls or []}

    loops.append(asyncio.get_running_loop())
    async with keep_controls(home, CONFIG, document):
        await asyncio.wait_for(is_over.wait(), 30)
    assert seen[:5] == [(), (), (SECOND,), (SECOND,), (SECOND, THIRD)]
    assert seen[5] == (THIRD, SECOND), "the second's host may have more than its control"


async def test_a_host_without_others_keeps_nothing(tmp_path: Path) -> None:
    async with keep_controls(Home(tmp_path), UpConfig(control_port=1), dict):
        await asyncio.sleep(0)
    assert not Home(tmp_path).known_controls.exists()
