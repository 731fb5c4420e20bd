"""The pages for Prometheus of an instance's copies, collected at once and within limits.

a copy's answer to GET /metrics                its page
--------------------------------------------   --------------------------------------------------
200, a page                                    its valid samples
200, more than a page's limit                  the whole lines up to the limit
200, no valid sample, or compressed            down
404, 405, 501                                  none, and it is asked again after NONE_FOR_S
another status, no answer within EACH_S        down
its turn did not come within TOTAL_S           down
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from hostelry.base.metrics_page import MetricsPage, parse_page
from hostelry.base.proc import ProcessIdentity
from hostelry.fleet.agent.model_server import MAX_ANSWER_BYTES, Answer, ModelServer
from hostelry.fleet.protocol import CopyPage

PATH = "/metrics"
PLAIN = {"Accept": "text/plain; version=0.0.4", "Accept-Encoding": "identity"}
EACH_S = 2.0
TOTAL_S = 3.0
AT_ONCE = 8
TOTAL_BYTES = 8 * 1024 * 1024
NONE_FOR_S = 600.0
NO_PAGE = frozenset({404, 405, 501})
OF_CONTROL = "hostelry_copy_metrics_"
OURS = "hostelry_"  # servers that are not ours may not use it


class MetricsSource(msgspec.Struct, frozen=True):
    """A ready copy. `process` distinguishes a server from its successor."""

    copy_id: str
    server: ModelServer
    process: ProcessIdentity | None
    is_built_in: bool


class MetricsPages:
    """Collects pages. `now_s` reads a monotonic clock. Belongs to one event loop."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._none_until: dict[tuple[str, ProcessIdentity | None], float] = {}

    async def collect(self, sources: Sequence[MetricsSource]) -> tuple[CopyPage, ...]:
        """Get a page from each source."""
        known = {(it.copy_id, it.process) for it in sources}
        self._none_until = {key: at for key, at in self._none_until.items() if key in known}
        slots = asyncio.Semaphore(AT_ONCE)
        room_bytes = TOTAL_BYTES

        async def collect_page(source: MetricsSource) -> CopyPage:
            nonlocal room_bytes
            found = CopyPage(copy_id=source.copy_id, answer="none", is_built_in=source.is_built_in)
            key = (source.copy_id, source.process)
            started_s = self._now_s()
            if started_s < self._none_until.get(key, 0.0):
                return found
            answer, body = Answer(), b""
            with suppress(TimeoutError):
                async with asyncio.timeout(TOTAL_S), slots:
                    started_s = self._now_s()
                    answer, body = await source.server.call(
                        "GET", PATH, timeout_s=EACH_S, headers=PLAIN, plain=True
                    )
            if answer.status in NO_PAGE:
                self._none_until[key] = self._now_s() + NONE_FOR_S
                return found
            found = replace(found, answer="down", seconds=self._now_s() - started_s)
            if answer.status != 200:
                return found
            if len(body) > room_bytes:
                return replace(found, page=MetricsPage(dropped={"limit": body.count(b"\n")}))
            room_bytes -= len(body)
            page = await asyncio.to_thread(_page, body, source.is_built_in)
            is_page = page.families or not page.dropped
            return replace(found, answer="up" if is_page else "down", page=page)

        return tuple(await asyncio.gather(*map(collect_page, sources)))


def _page(body: bytes, is_built_in: bool) -> MetricsPage:
    whole = body
    if len(body) > MAX_ANSWER_BYTES:  # it was cut off
        whole = body[: body.rfind(b"\n", 0, MAX_ANSWER_BYTES) + 1]
    page = parse_page(whole, (OF_CONTROL if is_built_in else OURS,))
    if whole is body:
        return page
    return replace(page, dropped={**page.dropped, "limit": page.dropped.get("limit", 0) + 1})
