"""A request on its way through the containers of a pipeline."""

import asyncio
from collections.abc import Callable

import pytest
from tests.cases import case, cases

from hostelry.dataplane.balancing.load_balancer import InFlightRequest
from hostelry.dataplane.balancing.pipeline import (
    PipelineLimits,
    PipelineStep,
    through_pipeline,
)
from hostelry.dataplane.fake import FakeReplyConnection
from hostelry.domain.routes import CopyRoute
from hostelry.http1.reply import (
    BrokenError,
    ConnectError,
    ContainerDownError,
    DeadlineError,
    Reply,
    TooLargeError,
    UpstreamError,
)
from hostelry.http1.upstream import Timeouts

NAMES = ("one", "two", "three")
COPIES = tuple(CopyRoute(id=it, address=f"http://{it}", container=it) for it in NAMES)
PIPELINE = CopyRoute(id="one", address="http://one", container="one", further=COPIES[1:])


class FakeTimes:
    """Records measurements: each container, and the time since the choice."""

    def __init__(self, step_s: float) -> None:
        self.at: list[str | None] = []
        self.answered = 0
        self._step_s = step_s

    def enter_container(self, name: str | None, copy_id: str = "") -> None:
        self.at.append(name)

    def leave_container(self, num_bytes: int = 0) -> None:
        self.answered += 1

    def since_chosen_s(self) -> float:
        return self.answered * self._step_s


def answer(status: int = 200, body: bytes = b"", whole: bool = True, **headers: str) -> Reply:
    reply = Reply(FakeReplyConnection())
    reply.set_head(status, {name.replace("_", "-"): it for name, it in headers.items()})
    reply.add_chunk(body)
    if whole:
        reply.end(reusable=True)
    return reply


class Rig:
    """A pipeline whose containers answer as `answers` has it, by name."""

    def __init__(self, step_s: float = 1.0, **answers: Reply | Exception) -> None:
        self.answers = {**{name: answer(body=name.encode()) for name in NAMES}, **answers}
        self.times = FakeTimes(step_s)
        self.steps: list[PipelineStep] = []
        self.closed: list[str] = []

    def _in_flight(self, copy: CopyRoute) -> InFlightRequest:
        found = self.answers[copy.id]
        if isinstance(found, Exception):
            raise found
        return InFlightRequest(copy, found, self._closing(copy.id))

    def _closing(self, name: str) -> Callable[[], None]:
        def close() -> None:
            if name not in self.closed:
                self.closed.append(name)

        return close

    async def send(self, step: PipelineStep) -> InFlightRequest:
        self.steps.append(step)
        return self._in_flight(step.copy)

    async def run(self) -> InFlightRequest:
        limits = PipelineLimits(total_s=10.0, max_body_bytes=100)
        first = self._in_flight(PIPELINE)
        return await through_pipeline(first, self.send, limits, self.times)


def test_each_gets_the_answer_of_the_one_before_and_the_time_that_is_left() -> None:
    rig = Rig(
        one=answer(body=b"1", content_type="text/csv", content_encoding="gzip"),
        two=answer(body=b"2"),
        three=answer(whole=False, body=b"3"),
    )
    found = asyncio.run(rig.run())
    assert rig.steps == [
        PipelineStep(
            copy=COPIES[1], content_type="text/csv", content_encoding="gzip", body=b"1",
            timeouts=Timeouts(total_s=9.0), is_last=False,
        ),
        PipelineStep(
            copy=COPIES[2], content_type="application/octet-stream", content_encoding=None,
            body=b"2", timeouts=Timeouts(total_s=8.0), is_last=True,
        ),
    ]  # fmt: skip
    assert (found.copy, found.answered_by.id) == (PIPELINE, "three")
    assert (rig.times.at, rig.times.answered) == (["two", "three"], 2)
    assert rig.closed == ["two"], "the first counts until the last byte"
    found.close()
    assert sorted(rig.closed) == ["one", "three", "two"]


@pytest.mark.parametrize("status", [199, 301, 400, 503])
@pytest.mark.parametrize("at", NAMES)
def test_an_answer_that_is_no_success_ends_it_there(at: str, status: int) -> None:
    rig = Rig(1.0, **{at: answer(status)})
    found = asyncio.run(rig.run())
    assert (found.answered_by.id, found.reply.status) == (at, status)
    assert [it.copy.id for it in rig.steps] == list(NAMES[1 : NAMES.index(at) + 1])
    found.close()
    assert set(NAMES[: NAMES.index(at) + 1]) == set(rig.closed)


@cases(
    "answers, step_s, kind, at",
    case("no connection", {"two": ConnectError("refused")}, 1.0, ContainerDownError, "two"),
    case("no answer", {"two": BrokenError("cut")}, 1.0, BrokenError, "two"),
    case("an answer above the limit", {"two": answer(body=b"x" * 101)}, 1.0, TooLargeError, "two"),
    case("no time for the last", {}, 6.0, DeadlineError, "three"),
)  # fmt: skip
def test_a_failure_names_the_copy_and_leaves_nothing_in_flight(
    answers: dict[str, Reply | Exception], step_s: float, kind: type[UpstreamError], at: str
) -> None:
    rig = Rig(step_s, **answers)
    with pytest.raises(UpstreamError) as failed:
        asyncio.run(rig.run())
    assert type(failed.value) is kind
    assert failed.value.copy is not None
    assert failed.value.copy.id == at
    assert "one" in rig.closed
    assert {it.copy.id for it in rig.steps} - set(rig.closed) <= {at}


async def test_a_client_that_leaves_cancels_the_container_under_way() -> None:
    slow = answer(whole=False, body=b"half")
    rig = Rig(two=slow)
    task = asyncio.create_task(rig.run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(rig.closed) == ["one", "two"]
    assert slow._line.released == [False], "its connection is cut"  # type: ignore[attr-defined]
