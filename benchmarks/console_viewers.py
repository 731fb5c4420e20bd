"""Viewers of the console without browsers: sign in by links, and follow live views as streams."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from tests.integration.platform import Platform

STREAMS_EACH = 10  # of one session, which may have 12 streams
BEGIN_S = 120


@dataclass(slots=True)
class Watched:
    """What the viewers of one measurement received."""

    num_events: int = 0
    num_bytes: int = 0
    snapshot_bytes: int = 0
    failures: list[str] = field(default_factory=list)


@contextlib.contextmanager
def watching(platform: Platform, topics: Sequence[dict[str, str]]) -> Iterator[Watched]:
    """Have a viewer of each topic for the block, which begins once all have a first document."""
    watched = Watched()
    if not topics:
        yield watched
        return
    sessions = [signed_in(platform) for _ in range(-(-len(topics) // STREAMS_EACH))]
    begun, ended = threading.Semaphore(0), threading.Event()

    async def follow_all() -> None:
        tasks = [
            asyncio.create_task(
                follow(platform, sessions[number // STREAMS_EACH], topic, watched, begun)
            )
            for number, topic in enumerate(topics)
        ]
        await asyncio.to_thread(ended.wait)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=asyncio.run, args=(follow_all(),), daemon=True)
    thread.start()
    try:
        for _ in topics:
            if not begun.acquire(timeout=BEGIN_S):
                raise RuntimeError(f"a view has no document after {BEGIN_S} s")
        watched.num_events = watched.num_bytes = 0
        yield watched
    finally:
        ended.set()
        thread.join()


def signed_in(platform: Platform) -> dict[str, str]:
    """The headers of a new session."""
    url = json.loads(platform.cli("console", "--json").stdout)["url"]
    base, _, code = url.partition("/console/sign-in#")
    with httpx.Client(trust_env=False, verify=False) as http:
        answer = http.post(f"{base}/console/sign-in", json={"code": code}, headers={"Origin": base})
        answer.raise_for_status()
        cookie = "; ".join(f"{name}={value}" for name, value in answer.cookies.items())
    return {"Cookie": cookie, "X-Hostelry-Csrf": answer.json()["token"], "Origin": base}


async def follow(
    platform: Platform,
    session: dict[str, str],
    topic: dict[str, str],
    watched: Watched,
    begun: threading.Semaphore,
) -> None:
    """Read a live view until cancelled."""
    url = f"{platform.config.gateway_url}/console/live"
    options: Any = {"trust_env": False, "verify": False, "timeout": None}
    has_begun = False
    async with (
        httpx.AsyncClient(**options) as http,
        http.stream("GET", url, params=topic, headers=session) as answer,
    ):
        if answer.status_code != 200:
            watched.failures.append(f"{topic}: {answer.status_code}")
        async for chunk in answer.aiter_bytes():
            watched.num_bytes += len(chunk)
            watched.num_events += chunk.count(b"\n\n")
            if not has_begun:
                watched.snapshot_bytes += len(chunk)
                if b"\n\n" in chunk:
                    has_begun = True
                    begun.release()
