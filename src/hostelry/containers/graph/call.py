"""One call of a graph: its steps carried out in parallel until the output is there."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from hostelry.base.clock import Clock
from hostelry.containers.graph.answer_cache import AnswerCache, content_key
from hostelry.containers.graph.functions import DEFAULT_LIMIT_S, FunctionError, Functions
from hostelry.containers.graph.step_record import HIT, StepRecord
from hostelry.containers.graph.step_times import StepEnd, StepTimes
from hostelry.containers.graph.targets import (
    CallTargetError,
    CallTargets,
    GraphContext,
    TargetStream,
)
from hostelry.graph.content import ContentError, media_type, read_body, write_body
from hostelry.graph.expression import GraphExpressionError
from hostelry.graph.faults import StepFault
from hostelry.graph.progress import next_steps
from hostelry.graph.settle import input_of, ruled, settle
from hostelry.graph.state import Act, GraphState, ReadyStep, StepOutcome
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
)

MAX_ANSWERS_BYTES = 64 * 1024 * 1024  # of all targets in one call
TIMED_OUT, FUNCTION_FAILED, UNPROCESSABLE, FAILED_DEPENDENCY = 504, 500, 422, 424


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDeps:
    """What every call of a graph uses; `clock` is for durations."""

    plan: GraphPlan
    targets: CallTargets
    functions: Functions
    caches: Mapping[str, AnswerCache]
    times: StepTimes
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphResult:
    """What a call came to; `stream` has the answer where the last step streams.

    `steps` is what its steps did, for the gateway.
    """

    outcome: StepOutcome
    steps: str
    stream: TargetStream | None = None


@dataclass(slots=True, kw_only=True)
class GraphCall:
    """One call; `run` it once."""

    deps: GraphDeps
    request: StepOutcome
    context: GraphContext
    is_stream: bool = False
    answer_bytes: int = 0
    stream: TargetStream | None = None
    state: GraphState = field(init=False)
    record: StepRecord = field(init=False)
    tasks: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    change: "asyncio.Future[None] | None" = None  # the end of a task, which `run` waits for
    defect: BaseException | None = None
    bodies: dict[tuple[str, str], bytes] = field(default_factory=dict)  # that steps share

    def __post_init__(self) -> None:
        """Begin with the request."""
        self.state = GraphState({REQUEST: self.request})
        self.record = StepRecord(self.deps.plan, self.deps.clock.now())

    async def run(self) -> GraphResult:
        """The result, also where the deadline passes; steps still under way then are ended."""
        deadline_s = self.deps.plan.deadline_s
        outcome: StepOutcome | None = None
        try:
            async with asyncio.timeout(deadline_s):
                outcome = await self._finished()
        except TimeoutError:
            waiting = ", ".join(sorted(key for key, it in self.tasks.items() if not it.done()))
            outcome = self._late(f"the call's deadline of {deadline_s:g} s has passed", waiting)
        finally:
            await self._end_tasks()
            if self.stream is not None and (outcome is None or not outcome.is_streamed):
                self.stream.close()
                self.stream = None
        steps = self.record.header(self.deps.clock.now())
        return GraphResult(outcome=outcome, stream=self.stream, steps=steps)

    async def _finished(self) -> StepOutcome:
        while self.defect is None:
            found = next_steps(self.deps.plan, self.state)
            if found.result is not None:
                return found.result
            if not self._carry_on(found.ready):
                self.change = asyncio.get_running_loop().create_future()
                await self.change
        raise self.defect  # of ours: it ends the call

    def _carry_on(self, ready: tuple[ReadyStep, ...]) -> bool:
        """Carry out local steps and begin the others; whether the state has changed."""
        changed = False
        for each in ready:
            if each.act in (Act.LOCAL, Act.LOOK_UP, Act.STORE):
                self._at_once(each)
                changed = True
            elif each.key not in self.tasks:
                task = asyncio.create_task(self._carry_out(each), name=each.key)
                task.add_done_callback(self._ended)
                self.tasks[each.key] = task
        return changed

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            self.defect = self.defect or task.exception()
        if self.change is not None and not self.change.done():
            self.change.set_result(None)

    def _at_once(self, ready: ReadyStep) -> None:
        if ready.act is Act.LOCAL:
            began_at = self.deps.clock.now()
            settle(self.deps.plan, self.state, ready)
            outcome = self.state.outcomes.get(ready.name)
            if outcome is not None:
                self.record.began(ready, began_at)
                self._note(ready, began_at, outcome)
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
            key = content_key(input_of(self.deps.plan, self.state, ready))
        except (GraphExpressionError, TypeError) as error:
            fault = StepFault(step=ready.name, reason=str(error), status=UNPROCESSABLE)
            self.state.outcomes[ready.name] = StepOutcome(fault=fault)
            return
        found = cache.get(key)
        if found is None:
            self.state.choices[ready.name] = key
        else:
            self.state.outcomes[ready.name] = found
            now = self.deps.clock.now()
            self.record.began(ready, now)
            self._note(ready, now, found)
            self.record.ended(ready, now, HIT)

    async def _carry_out(self, ready: ReadyStep) -> None:
        """Run a call or a function, and note its outcome by the step's rule."""
        step = self.deps.plan.steps[ready.name]
        began_at = self.deps.clock.now()
        self.record.began(ready, began_at)
        try:
            async with asyncio.timeout(step.timeout_s):
                outcome = await self._outcome(step, ready)
        except TimeoutError:
            outcome = self._failed(step, f"it took more than {step.timeout_s:g} s", TIMED_OUT)
        except (GraphExpressionError, ContentError) as error:
            outcome = self._failed(step, str(error), UNPROCESSABLE)
        except CallTargetError as error:
            if error.request_id:
                self.record.answered(ready.key, 0, error.request_id)
            outcome = self._failed(step, str(error), error.status)
        except FunctionError as error:
            outcome = self._failed(step, str(error), FUNCTION_FAILED)
        self.state.outcomes[ready.key] = outcome
        self._note(ready, began_at, outcome)

    async def _outcome(self, step: GraphStep, ready: ReadyStep) -> StepOutcome:
        given = input_of(self.deps.plan, self.state, ready)
        action = step.action
        if isinstance(action, CallAction | EachAction):
            return await self._called(action, ready, given)
        assert isinstance(action, FunctionAction | GatherAction)
        assert action.function is not None
        limit_s = step.timeout_s or DEFAULT_LIMIT_S
        value = await self.deps.functions.call(action.function, given.value, limit_s)
        return StepOutcome(value=value)

    async def _called(
        self, action: CallAction | EachAction, ready: ReadyStep, given: StepOutcome
    ) -> StepOutcome:
        target = action.target
        body = self._body(ready, given, media_type(target.content_type))
        self.record.sent(ready.key, len(body))
        if self.is_stream and ready.is_last:
            self.stream = await self.deps.targets.stream(target, body, self.context)
            self.record.answered(ready.key, 0, self.stream.request_id)
            return StepOutcome(is_streamed=True, content_type=self.stream.content_type)
        answer = await self.deps.targets.call(target, body, self.context)
        self.record.answered(ready.key, len(answer.body), answer.request_id)
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

    def _body(self, ready: ReadyStep, given: StepOutcome, wanted: str) -> bytes:
        """The body that is sent: as it came, or written, once for all steps with that input."""
        if given.body is not None and media_type(given.content_type) == wanted:
            return given.body
        if ready.item is not None:
            return write_body(given.value, wanted)
        key = self.deps.plan.steps[ready.name].input.text, wanted
        if key not in self.bodies:
            self.bodies[key] = write_body(given.value, wanted)
        return self.bodies[key]

    @staticmethod
    def _failed(step: GraphStep, reason: str, status: int) -> StepOutcome:
        return ruled(step, StepFault(step=step.name, reason=reason, status=status))

    @staticmethod
    def _late(reason: str, waiting: str) -> StepOutcome:
        fault = StepFault(step=waiting or "none", reason=reason, status=TIMED_OUT)
        return StepOutcome(fault=fault)

    def _note(self, ready: ReadyStep, began_at: float, outcome: StepOutcome) -> None:
        step, now = self.deps.plan.steps[ready.name], self.deps.clock.now()
        end = StepEnd.OK
        if outcome.fault is not None:
            end = StepEnd.FAILED
        elif outcome.is_dropped:
            end = StepEnd.DROPPED
        elif step.on_error is OnError.DEFAULT and outcome.value is step.default:
            end = StepEnd.DEFAULT
        self.deps.times.ended(step.name, now - began_at, end)
        self.record.ended(ready, now, "streams" if outcome.is_streamed else end.value)

    async def _end_tasks(self) -> None:
        running = [task for task in self.tasks.values() if not task.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.gather(*running, return_exceptions=True)
