"""Live documents: each is computed once for all browsers that follow it.

A follower knows the number of its version, and gets the patches from that version on. A follower
that is more than `KEPT_PATCHES` changes behind gets the whole document again, so that no patches
are queued for a slow browser. Without followers, a document is not computed, and no process is
asked.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from hostelry.base.clock import Clock
from hostelry.console.delta import diff, without_nulls
from hostelry.console.platform import (
    PlatformError,
    PlatformPort,
    ProcessQuery,
    Query,
    answer_to,
)
from hostelry.console.view_table import ConsoleView

LOG = logging.getLogger(__name__)

EVERY_S = 1.0
MAX_PAUSE_S = 15.0
# A topic asks and computes for at most this share of the time. So the view of a large fleet changes
# less often.
MAX_SHARE = 0.03
KEPT_PATCHES = 8
# After this time the page shows the answers of the other sources, and that one source is late.
PATIENCE_S = 2.0
SHARED_FOR_S = 0.9
TROUBLE = "trouble"
# The answer's `revision` counts the changes of control's records. This query is very cheap.
REVISION = ProcessQuery(process="control", path="/internal/health")
FAILED = "This view could not be computed; the console's log has the cause."


class LiveTopic(msgspec.Struct, frozen=True):
    """A view with its parameters, sorted."""

    view: str
    params: tuple[tuple[str, str], ...] = ()


def pause_s(took_s: float) -> float:
    """Compute the seconds to wait after `took_s` seconds of asking and computing."""
    return min(max(EVERY_S - took_s, took_s * (1 / MAX_SHARE - 1)), MAX_PAUSE_S)


def event(kind: str, value: Any) -> bytes:
    """Encode a server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(value))


class SharedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, with the time and the `revision` of control's records when it was asked for."""

    asked_at: float
    task: "asyncio.Task[dict[str, Any]]"
    revision: Any = None


class SharedAnswers:
    """Answers of the platform, which the topics share."""

    def __init__(self, port: PlatformPort, monotonic: Callable[[], float]) -> None:
        self._port = port
        self._monotonic = monotonic
        self._asked: dict[bytes, SharedAnswer] = {}

    async def answer(self, query: Query) -> dict[str, Any]:
        """Return a recent answer to `query`, or ask. Raises PlatformError.

        An answer is used again for `SHARED_FOR_S`. If control's records have not changed, it is
        used again for the `holds_s` of its query.
        """
        holds_s = query.holds_s if isinstance(query, ProcessQuery) else 0.0
        revision = (await self.answer(REVISION)).get("revision") if holds_s else None
        key = msgspec.json.encode((type(query).__name__, query), order="deterministic")
        known = self._asked.get(key)
        if known is None or not self._holds(known, revision, holds_s):
            known = self._ask(key, query, revision)
        return await asyncio.shield(known.task)

    def _holds(self, known: SharedAnswer, revision: Any, holds_s: float) -> bool:
        age_s = self._monotonic() - known.asked_at
        if not known.task.done() or age_s <= SHARED_FOR_S:
            return True
        has_answer = not known.task.cancelled() and known.task.exception() is None
        return has_answer and age_s < holds_s and known.revision == revision

    def _ask(self, key: bytes, query: Query, revision: Any) -> SharedAnswer:
        now = self._monotonic()
        for name, old in tuple(self._asked.items()):
            if old.task.done() and now - old.asked_at > MAX_PAUSE_S:
                del self._asked[name]
        task = asyncio.ensure_future(answer_to(self._port, query))
        task.add_done_callback(_looked_at)
        self._asked[key] = SharedAnswer(asked_at=now, task=task, revision=revision)
        return self._asked[key]


def _looked_at(task: "asyncio.Future[Any]") -> None:
    """Retrieve the exception of a task without followers, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


class TopicWatch:
    """One topic's document and its last patches."""

    def __init__(
        self, view: ConsoleView, params: Mapping[str, str], answers: SharedAnswers, clock: Clock
    ) -> None:
        self.num_followers = 0
        self.version = 0
        self.changed = asyncio.Event()
        self._view = view
        self._params = params
        self._answers = answers
        self._clock = clock
        self._document: dict[str, Any] = {}
        self._last: dict[str, Any] = {}
        self._patches: deque[tuple[int, bytes]] = deque(maxlen=KEPT_PATCHES)

    async def run(self, monotonic: Callable[[], float]) -> None:
        """Compute the document again and again, until cancelled."""
        while True:
            began = monotonic()
            self.publish(await self._compute_document())
            await self._clock.sleep(pause_s(monotonic() - began))

    def publish(self, document: dict[str, Any]) -> None:
        """Send followers the changes to `document`, if there are any."""
        patch = diff(self._document, document)
        if not patch and self.version:
            return
        self._document = document
        self.version += 1
        self._patches.append((self.version, event("patch", patch)))
        self.changed.set()
        self.changed = asyncio.Event()

    def since(self, version: int) -> bytes:
        """Return the events that lead from `version` to the present version."""
        missing = self.version - version
        if version and missing <= len(self._patches):
            return b"".join(it for number, it in self._patches if number > version)
        return event("snapshot", self._document)

    async def _compute_document(self) -> dict[str, Any]:
        now = self._clock.now()
        try:
            queries = self._view.sources(self._params, now)
            before = dict(self._last)
            found = await self._all_asked(queries)
            is_same = all(
                _is_held(query) and not why and self._last[name] is before.get(name)
                for (name, query), why in zip(queries.items(), found, strict=True)
            )
            if self.version and is_same:
                return {**self._document, TROUBLE: {}}
            return self._build_document(queries, found, now)
        except Exception:  # a defect of a view must not end the stream of its followers
            LOG.exception("a view failed: %s", self._params)
            return {**self._document, TROUBLE: {"console": FAILED}}

    def _build_document(
        self, queries: Mapping[str, Query], found: Sequence[str | None], now: float
    ) -> dict[str, Any]:
        """Build the document from the last answers. `found` has the trouble of each source."""
        trouble = {name: why for name, why in zip(queries, found, strict=True) if why}
        answers = {name: self._last.get(name) for name in queries}
        return {
            **without_nulls(self._view.document(answers, self._params, now)),
            TROUBLE: trouble,
        }

    async def _all_asked(self, queries: Mapping[str, Query]) -> list[str | None]:
        """Ask all sources. Returns for each the reason why it gave no answer, or None.

        While sources are late, the document says so.
        """
        asking = [asyncio.ensure_future(self._ask_source(*it)) for it in queries.items()]
        patience = asyncio.ensure_future(self._clock.sleep(PATIENCE_S))
        everything = asyncio.gather(*asking)
        everything.add_done_callback(_looked_at)
        try:
            either: set[asyncio.Future[Any]] = {everything, patience}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not everything.done():
                late = [
                    it.result()
                    if it.done()
                    else f"{_get_source_name(query)} has not answered for a while."
                    for it, query in zip(asking, queries.values(), strict=True)
                ]
                self.publish(self._build_document(queries, late, self._clock.now()))
            return await everything
        finally:
            patience.cancel()
            everything.cancel()

    async def _ask_source(self, name: str, query: Query) -> str | None:
        """Ask a source and keep its answer. Returns the reason if it does not answer now."""
        try:
            self._last[name] = await self._answers.answer(query)
        except PlatformError as error:
            return str(error)
        return None


def _get_source_name(query: Query) -> str:
    return query.process if isinstance(query, ProcessQuery) else query.service


def _is_held(query: Query) -> bool:
    return isinstance(query, ProcessQuery) and query.holds_s > 0


class LiveFollower:
    """One browser's place in a topic."""

    def __init__(self, watch: TopicWatch) -> None:
        self._watch = watch
        self._version = 0

    async def next_events(self, within_s: float) -> bytes | None:
        """Wait for the events since the last call. None if nothing changes for `within_s`."""
        watch = self._watch
        while self._version == watch.version:
            changed = watch.changed
            try:
                async with asyncio.timeout(within_s):
                    await changed.wait()
            except TimeoutError:
                return None
        events = watch.since(self._version)
        self._version = watch.version
        return events


class LiveTopics:
    """All topics that are followed now."""

    def __init__(
        self,
        views: Mapping[str, ConsoleView],
        port: PlatformPort,
        clock: Clock,
        monotonic: Callable[[], float],
    ) -> None:
        self._views = views
        self._answers = SharedAnswers(port, monotonic)
        self._clock = clock
        self._monotonic = monotonic
        self._watches: dict[LiveTopic, tuple[TopicWatch, asyncio.Task[None]]] = {}

    @property
    def num_topics(self) -> int:
        """Number of topics that are computed now."""
        return len(self._watches)

    @asynccontextmanager
    async def following(self, topic: LiveTopic) -> AsyncIterator[LiveFollower]:
        """Follow `topic`, whose view exists, during the block."""
        watch = self._watch(topic)
        watch.num_followers += 1
        try:
            yield LiveFollower(watch)
        finally:
            watch.num_followers -= 1
            if not watch.num_followers:
                self._watches.pop(topic)[1].cancel()

    def _watch(self, topic: LiveTopic) -> TopicWatch:
        known = self._watches.get(topic)
        if known is None:
            view = self._views[topic.view]
            watch = TopicWatch(view, dict(topic.params), self._answers, self._clock)
            task = asyncio.ensure_future(watch.run(self._monotonic))
            known = self._watches[topic] = (watch, task)
        return known[0]
