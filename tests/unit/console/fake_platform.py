"""A platform with prepared answers."""

import asyncio
from collections.abc import Mapping
from typing import Any

from hostelry.console.platform import PlatformError


class FakePlatform:
    """Implements `PlatformPort`. `answers` are by path or operation. Others are refused.

    `asked` has the paths and operations in order, `sent` the bodies and parameters of changes.
    """

    def __init__(self, answers: Mapping[str, dict[str, Any]] | None = None) -> None:
        self.answers = dict(answers or {})
        self.hangs: dict[str, asyncio.Event] = {}
        self.asked: list[str] = []
        self.sent: list[tuple[str, dict[str, Any]]] = []

    async def ask(
        self, process: str, path: str, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The answer for a path. If `hangs` has an event for it, first waits for the event."""
        if path in self.hangs:
            await self.hangs[path].wait()
        return self._answer(path, f"{process} does not answer")

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The answer for an operation."""
        self.sent.append((operation, dict(parameters)))
        return self._answer(operation, f"{operation} is refused")

    async def post(self, process: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer for a path."""
        self.sent.append((path, dict(body)))
        return self._answer(path, f"{path} is refused")

    def _answer(self, name: str, otherwise: str) -> dict[str, Any]:
        self.asked.append(name)
        if name not in self.answers:
            raise PlatformError(otherwise)
        return self.answers[name]
