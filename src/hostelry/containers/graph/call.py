"""One call of a graph, whose steps run in parallel until the output is complete."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.base.clock import Clock
from hostelry.containers.graph.functions import DEFAULT_LIMIT_S, FunctionError, Functions
from hostelry.containers.graph.step_times import HIT, StepEnd, StepRecord, StepTimes
from hostelry.containers.graph.targets import (
    CallTargetError,
    CallTargets,
    GraphContext,
    TargetStream,
)
from hostelry.graph.content import ContentError, media_type, read_body, write_body
from hostelry.graph.expression import GraphExpressionError
from hostelry.graph.progress import Act, GraphState, ReadyStep, StepOutcome, next_steps
from hostelry.graph.settle import apply_rule, find_input, settle
from hostelry.graph.steps import (
    REQUEST,
    CacheAction,
    CallAction,
    EachAction,
    FunctionAction,
    GatherAction,
    GraphPlan,
    GraphStep,
    OnError,
    StepFault,
)

ENTRY_BYTES = 512  # about the size of an entry without its answer
MAX_ANSWERS_BYTES = 64 * 1024 * 1024  # of all targets in one call
TIMED_OUT, FUNCTION_FAILED, UNPROCESSABLE, FAILED_DEPENDENCY = 504, 500, 422, 424


class _CacheEntry(msgspec.Struct, frozen=True):
    outcome: StepOutcome
    size_bytes: int
    ends_at: float


class AnswerCache:
    """The answers of one step, bounded in bytes and age. The least recently used goes first."""

    def __init__(self, ttl_s: float, max_bytes: int, clock: Clock) -> None:
        self._ttl_s = ttl_s
        self._max_bytes = max_bytes
        self._clock = clock
        self._kept: OrderedDict[bytes, _CacheEntry] = OrderedDict()
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes) -> StepOutcome | None:
        """The answer with that key. None if it is missing or has expired."""
        entry = self._kept.get(key)
        if entry is not None and entry.ends_at <= self._clock.now():
            self._remove(key)
            entry = None
        if entry is None:
            self.misses += 1
            return None
        self.hits += 1
        self._kept.move_to_end(key)
        return entry.outcome

    def put(self, key: bytes, outcome: StepOutcome) -> None:
        """Keep an answer, unless it is dropped, failed or larger than the cache."""
        self._remove(key)
        size_bytes = ENTRY_BYTES + estimate_size(outcome)
        if outcome.is_dropped or outcome.fault is not None or size_bytes > self._max_bytes:
            return
        while self._kept and self.size_bytes + size_bytes > self._max_bytes:
            self._remove(next(iter(self._kept)))
        self._kept[key] = _CacheEntry(outcome, size_bytes, self._clock.now() + self._ttl_s)
        self.size_bytes += size_bytes

    def _remove(self, key: bytes) -> None:
        entry = self._kept.pop(key, None)
        if entry is not None:
            self.size_bytes -= entry.size_bytes


def hash_input(given: StepOutcome) -> bytes:
    """The cache key of an input: a hash of its content, independent of the order of keys."""
    if isinstance(given.value, bytes):
        return sha256(b"bytes:" + given.value).digest()
    return sha256(msgspec.json.encode(given.value, order="deterministic")).digest()


def estimate_size(outcome: StepOutcome) -> int:
    """About the memory of an answer: the bytes of its body and of its value as text."""
    value: Any = outcome.value
    text = len(value) if isinstance(value, bytes) else len(msgspec.json.encode(value))
    return text + len(outcome.body or b"")


class GraphDeps(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that all calls of a graph share. `clock` is for durations."""

    plan: GraphPlan
    targets: CallTargets
    functions: Functions
    caches: Mapping[str, AnswerCache]
    times: StepTimes
    clock: Clock


class GraphResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call. `stream` has the answer if the last step streams.

    `steps` is the header with the report on the call's steps, for the gateway.
    """

    outcome: StepOutcome
    steps: str
    stream: TargetStream | None = None


@dataclass(slots=True, kw_only=True)
class GraphCall:
    """One call. `run` it once."""

    deps: GraphDeps
    request: StepOutcome
    context: GraphContext
    is_stream: bool = False
    answer_bytes: int = 0
    stream: TargetStream | None = None
    state: GraphState = field(init=False)
    record: StepRecord = field(init=False)
    tasks: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    change: "asyncio.Future[None] | None" = None  # awaited by `run`, set at a task's end
    defect: BaseException | None = None
    bodies: dict[tuple[str, str], bytes] = field(default_factory=dict)  # by input and type

    def __post_init__(self) -> None:
        """Begin with the request."""
        self.state = GraphState({REQUEST: self.request})
        self.record = StepRecord(self.deps.plan, self.deps.clock.now())

    async def run(self) -> GraphResult:
        """Run the steps until the output or the deadline. Cancels remaining steps."""
        deadline_s = self.deps.plan.deadline_s
        outcome: StepOutcome | None = None
        try:
            async with asyncio.timeout(deadline_s):
                outcome = await self._run_steps()
        except TimeoutError:
            waiting = ", ".join(sorted(key for key, it in self.tasks.items() if not it.done()))
            outcome = self._time_out(f"the call's deadline of {deadline_s:g} s has passed", waiting)
        finally:
            await self._end_tasks()
            if self.stream is not None and (outcome is None or not outcome.is_streamed):
                self.stream.close()
                self.stream = None
        steps = self.record.header(self.deps.clock.now())
        return GraphResult(outcome=outcome, stream=self.stream, steps=steps)

    async def _run_steps(self) -> StepOutcome:
        while self.defect is None:
            following = next_steps(self.deps.plan, self.state)
            if following.result is not None:
                return following.result
            if not self._begin_steps(following.ready):
                self.change = asyncio.get_running_loop().create_future()
                await self.change
        raise self.defect  # a defect of this program ends the call

    def _begin_steps(self, ready: tuple[ReadyStep, ...]) -> bool:
        """Run local steps and begin tasks of the others. True if the state has changed."""
        changed = False
        for step in ready:
            if step.act in (Act.LOCAL, Act.LOOK_UP, Act.STORE):
                self._run_local(step)
                changed = True
            elif step.key not in self.tasks:
                task = asyncio.create_task(self._run_remote(step), name=step.key)
                task.add_done_callback(self._on_task_end)
                self.tasks[step.key] = task
        return changed

    def _on_task_end(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            self.defect = self.defect or task.exception()
        if self.change is not None and not self.change.done():
            self.change.set_result(None)

    def _run_local(self, ready: ReadyStep) -> None:
        if ready.act is Act.LOCAL:
            began_at = self.deps.clock.now()
            settle(self.deps.plan, self.state, ready)
            outcome = self.state.outcomes.get(ready.name)
            if outcome is not None:
                self.record.note_begin(ready, began_at)
                self._note_end(ready, began_at, outcome)
            return
        cache = self.deps.caches[ready.name]
        if ready.act is Act.STORE:
            action = self.deps.plan.steps[ready.name].action
            assert isinstance(action, CacheAction)
            outcome = self.state.outcomes[action.of]
            cache.put(self.state.choices[ready.name], outcome)
            self.state.outcomes[ready.name] = outcome
            return
        try:
            key = hash_input(find_input(self.deps.plan, self.state, ready))
        except (GraphExpressionError, TypeError) as error:
            fault = StepFault(step=ready.name, reason=str(error), status=UNPROCESSABLE)
            self.state.outcomes[ready.name] = StepOutcome(fault=fault)
            return
        cached = cache.get(key)
        if cached is None:
            self.state.choices[ready.name] = key
        else:
            self.state.outcomes[ready.name] = cached
            now = self.deps.clock.now()
            self.record.note_begin(ready, now)
            self._note_end(ready, now, cached)
            self.record.note_end(ready, now, HIT)

    async def _run_remote(self, ready: ReadyStep) -> None:
        """Run a call or a function, and note its outcome by the step's rule."""
        step = self.deps.plan.steps[ready.name]
        began_at = self.deps.clock.now()
        self.record.note_begin(ready, began_at)
        try:
            async with asyncio.timeout(step.timeout_s):
                outcome = await self._compute(step, ready)
        except TimeoutError:
            outcome = self._fail(step, f"it took more than {step.timeout_s:g} s", TIMED_OUT)
        except (GraphExpressionError, ContentError) as error:
            outcome = self._fail(step, str(error), UNPROCESSABLE)
        except CallTargetError as error:
            if error.request_id:
                self.record.note_answer(ready.key, 0, error.request_id)
            outcome = self._fail(step, str(error), error.status)
        except FunctionError as error:
            outcome = self._fail(step, str(error), FUNCTION_FAILED)
        self.state.outcomes[ready.key] = outcome
        self._note_end(ready, began_at, outcome)

    async def _compute(self, step: GraphStep, ready: ReadyStep) -> StepOutcome:
        given = find_input(self.deps.plan, self.state, ready)
        action = step.action
        if isinstance(action, CallAction | EachAction):
            return await self._call_target(action, ready, given)
        assert isinstance(action, FunctionAction | GatherAction)
        assert action.function is not None
        limit_s = step.timeout_s or DEFAULT_LIMIT_S
        value = await self.deps.functions.call(action.function, given.value, limit_s)
        return StepOutcome(value=value)

    async def _call_target(
        self, action: CallAction | EachAction, ready: ReadyStep, given: StepOutcome
    ) -> StepOutcome:
        target = action.target
        body = self._get_body(ready, given, media_type(target.content_type))
        self.record.note_request(ready.key, len(body))
        context = replace(self.context, step=ready.key)
        if self.is_stream and ready.is_last:
            self.stream = await self.deps.targets.stream(target, body, context)
            self.record.note_answer(ready.key, 0, self.stream.request_id)
            return StepOutcome(is_streamed=True, content_type=self.stream.content_type)
        answer = await self.deps.targets.call(target, body, context)
        self.record.note_answer(ready.key, len(answer.body), answer.request_id)
        self.answer_bytes += len(answer.body)
        if self.answer_bytes > MAX_ANSWERS_BYTES:
            raise CallTargetError(
                f"the answers of this call have more than {MAX_ANSWERS_BYTES} bytes"
            )
        kind = answer.content_type or target.accept
        if media_type(kind) != media_type(target.accept):
            raise CallTargetError(f"{target.title} answered {kind:.80}; accept is {target.accept}")
        try:
            value = read_body(answer.body, kind)
        except ContentError as error:
            raise CallTargetError(f"{target.title} answered nonsense: {error}") from None
        return StepOutcome(value=value, body=answer.body, content_type=kind)

    def _get_body(self, ready: ReadyStep, given: StepOutcome, wanted: str) -> bytes:
        """The body to send: the input's own body, or a body that is encoded once for all steps."""
        if given.body is not None and media_type(given.content_type) == wanted:
            return given.body
        if ready.item is not None:
            return write_body(given.value, wanted)
        key = self.deps.plan.steps[ready.name].input.text, wanted
        if key not in self.bodies:
            self.bodies[key] = write_body(given.value, wanted)
        return self.bodies[key]

    @staticmethod
    def _fail(step: GraphStep, reason: str, status: int) -> StepOutcome:
        return apply_rule(step, StepFault(step=step.name, reason=reason, status=status))

    @staticmethod
    def _time_out(reason: str, waiting: str) -> StepOutcome:
        fault = StepFault(step=waiting or "none", reason=reason, status=TIMED_OUT)
        return StepOutcome(fault=fault)

    def _note_end(self, ready: ReadyStep, began_at: float, outcome: StepOutcome) -> None:
        step, now = self.deps.plan.steps[ready.name], self.deps.clock.now()
        end = StepEnd.OK
        if outcome.fault is not None:
            end = StepEnd.FAILED
        elif outcome.is_dropped:
            end = StepEnd.DROPPED
        elif step.on_error is OnError.DEFAULT and outcome.value is step.default:
            end = StepEnd.DEFAULT
        self.deps.times.count_end(step.name, now - began_at, end)
        self.record.note_end(ready, now, "streams" if outcome.is_streamed else end.value)

    async def _end_tasks(self) -> None:
        running = [task for task in self.tasks.values() if not task.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.gather(*running, return_exceptions=True)
