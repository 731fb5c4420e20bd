"""A console without a gateway. Tests send requests directly to its application."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
from tests.unit.console.fake_platform import FakePlatform

from hostelry.base.clock import ManualClock
from hostelry.console.app import ConsoleDeps, console_app
from hostelry.console.live import LiveTopics
from hostelry.console.session_file import SessionFile
from hostelry.console.view_table import VIEWS
from hostelry.console.visits import COOKIE

HOST = "127.0.0.1:8787"
OWN = {"origin": f"http://{HOST}", "x-forwarded-host": HOST}
KEY = {"X-Hostelry-Key": "internal"}


class SampleConsole:
    """An application over a fake platform. `ask` sends one request as the gateway would."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.port = FakePlatform(
            {"/internal/placement": {"endpoints": []}, "/internal/health": {"revision": 1}}
        )
        self.sessions = SessionFile(folder / "sessions.json", self.clock.now)
        self.topics = LiveTopics(VIEWS, self.port, self.clock, self.clock.now)
        self.app = console_app(
            ConsoleDeps(
                port=self.port,
                topics=self.topics,
                sessions=self.sessions,
                clock=self.clock,
                internal_key="internal",
                reading_key="sk-read",
                acting_key="secret-act",
            )
        )

    def shown(self, *, acts: bool = False) -> dict[str, str]:
        """The headers of a browser that has just signed in."""
        opened = self.sessions.new_session(acts=acts)
        return {"cookie": f"{COOKIE}={opened.cookie}", "x-hostelry-csrf": opened.token}

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        key: Mapping[str, str] = KEY,
    ) -> httpx.Response:
        """Send one request and return the answer. `body` is JSON unless it is bytes."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body or {})
        kind = {"content-type": "application/json"} if method == "POST" else {}

        async def sent() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                return await client.request(
                    method,
                    path,
                    headers={**kind, **key, **(headers or {})},
                    content=content if method == "POST" else None,
                )

        return asyncio.run(sent())
