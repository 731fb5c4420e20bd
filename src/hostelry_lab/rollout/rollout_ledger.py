"""The requests of an update under kills, why some failed, and the promises it broke. Pure.

a request that failed                                      its cause
--------------------------------------------------------   --------------------------------------
without an answer, while a gateway worker was killed       its sockets: no server can answer it
with the model's own error, in an update to a broken one   the broken version
any other                                                  its error: a broken promise

Instants are seconds since the update was requested.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

SOCKETS = "in flight on a killed gateway worker"
BROKEN = "answered 500 by the broken version"
MODEL_ERROR = "ModelError"
# Errors of a client whose connection ends, or is refused.
NO_ANSWER = frozenset({"EndpointConnectionError", "ConnectionClosedError", "ConnectTimeoutError"})
NOTICED_S = 0.5  # after a kill, in which clients of its sockets must see their end
SETTLED_S = 1.0  # after a rollback, in which every gateway worker must get the routes
BUCKET_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutCall:
    """A request: the version that answered it, or the code or class of its error."""

    began_s: float
    ended_s: float
    version: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutKill:
    """A kill in a step of the update. `back_s` later the process had a successor (None: never)."""

    kind: str
    name: str
    at_s: float
    step: str
    back_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStep:
    """A step of the update, as control has recorded it."""

    name: str
    began_s: float
    ended_s: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPart:
    """One update: to a good version, which must serve in the end, or a broken one, which must not.

    `outcome` and `cause` are control's. `shares` has the new version's share of the requests in
    each `BUCKET_S`, or None if no model got a request. `failed` has the failures in each.
    `rollback_s` is the time from the new version's first request to the end of the update.
    """

    name: str
    is_good: bool
    requests: int
    answers: Mapping[str, int]
    failures: Mapping[str, int]
    outcome: str
    cause: str | None
    took_s: float
    rollback_s: float | None
    failed_afterwards: int
    max_socket_failures: int
    steps: Sequence[RolloutStep]
    kills: Sequence[RolloutKill]
    shares: Sequence[float | None] = field(default=())
    failed: Sequence[int] = field(default=())

    def broken_promises(self) -> list[str]:
        """A sentence for each broken promise."""
        found = []
        wanted = "complete" if self.is_good else "rolled back"
        if self.outcome != wanted:
            found.append(f"{self.name}: {self.outcome}, not {wanted}: {self.cause or 'no cause'}")
        elif not self.is_good and "ALARM" not in (self.cause or ""):
            found.append(f"{self.name}: rolled back by no alarm: {self.cause}")
        other = {it: count for it, count in self.failures.items() if it not in (SOCKETS, BROKEN)}
        found += [f"{self.name}: {count} requests failed: {it}" for it, count in other.items()]
        if self.failures.get(SOCKETS, 0) > self.max_socket_failures:
            found.append(
                f"{self.name}: {self.failures[SOCKETS]} requests failed {SOCKETS}, and only"
                f" {self.max_socket_failures} can have been"
            )
        if self.failed_afterwards:
            found.append(f"{self.name}: {self.failed_afterwards} requests failed after its end")
        lost = [it.name for it in self.kills if it.back_s is None]
        return [*found, *(f"{self.name}: {it} did not come back" for it in lost)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFacts:
    """The settings and the observations of one update."""

    name: str
    new_version: str
    is_good: bool
    num_threads: int
    calls: Sequence[RolloutCall]
    kills: Sequence[RolloutKill]
    steps: Sequence[RolloutStep]
    outcome: str
    cause: str | None
    ended_s: float


def count_part(facts: RolloutFacts) -> RolloutPart:
    """The ledger of one update."""
    gateway_kills = [it.at_s for it in facts.kills if it.kind == "gateway"]
    failed = [it for it in facts.calls if it.error is not None]
    causes = Counter(failure_cause(it, gateway_kills, facts.is_good) for it in failed)
    firsts = [it.began_s for it in facts.calls if is_of_new(it, facts)]
    shares, failures = buckets(facts)
    return RolloutPart(
        name=facts.name,
        is_good=facts.is_good,
        requests=len(facts.calls),
        answers=dict(sorted(Counter(it.version for it in facts.calls if it.version).items())),
        failures=dict(sorted(causes.items())),
        outcome=facts.outcome,
        cause=facts.cause,
        took_s=facts.ended_s,
        rollback_s=None if facts.is_good or not firsts else facts.ended_s - min(firsts),
        failed_afterwards=sum(1 for it in failed if it.began_s > facts.ended_s + SETTLED_S),
        max_socket_failures=facts.num_threads * len(gateway_kills),
        steps=facts.steps,
        kills=facts.kills,
        shares=shares,
        failed=failures,
    )


def is_of_new(call: RolloutCall, facts: RolloutFacts) -> bool:
    """Whether the new version got the request. A broken version is recognized by its error."""
    return call.version == facts.new_version or (not facts.is_good and call.error == MODEL_ERROR)


def failure_cause(call: RolloutCall, gateway_kills: Iterable[float], is_good: bool) -> str:
    """Why a request failed, by the table above."""
    if call.error == MODEL_ERROR and not is_good:
        return BROKEN
    touched = any(call.began_s - NOTICED_S <= at <= call.ended_s for at in gateway_kills)
    if call.error in NO_ANSWER and touched:
        return SOCKETS
    return str(call.error)


def buckets(facts: RolloutFacts) -> tuple[list[float | None], list[int]]:
    """The new version's share of the requests that a model got, and the failures, by `BUCKET_S`."""
    calls = [it for it in facts.calls if it.began_s >= 0.0]
    length = max((int(it.began_s // BUCKET_S) + 1 for it in calls), default=0)
    news, reached, failures = ([0] * length for _ in range(3))
    for call in calls:
        place, is_new = int(call.began_s // BUCKET_S), is_of_new(call, facts)
        failures[place] += call.error is not None
        reached[place] += is_new or call.version is not None
        news[place] += is_new
    shares = [new / of if of else None for new, of in zip(news, reached, strict=True)]
    return shares, failures


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutLedger:
    """The ledger of every update of the drill."""

    parts: Sequence[RolloutPart]

    def broken_promises(self) -> list[str]:
        """A sentence for each broken promise."""
        return [line for it in self.parts for line in it.broken_promises()]
