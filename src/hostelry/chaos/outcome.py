"""What a drill measured, as values, and what the load's calls say about it. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hostelry.chaos.call import OK, Call
from hostelry.chaos.neighbours import Neighbours


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """How the load's calls fared around a fault; instants are seconds after the fault.

    `served_after_s`: the last call to fail began then; 0 where none failed. `slowest_s` is the
    longest that a successful call took.
    """

    num_calls: int
    in_flight: int
    errors: dict[str, int]
    served_after_s: float
    slowest_s: float


def served(calls: Iterable[Call], fault_at: float) -> Served:
    """What became of the calls that were under way at the fault, or began later."""
    touched = [call for call in calls if call.ended_at >= fault_at]
    failed = [call for call in touched if call.outcome != OK]
    last_failed_at = max((call.began_at for call in failed), default=fault_at)
    well = (call.ended_at - call.began_at for call in touched if call.outcome == OK)
    return Served(
        num_calls=len(touched),
        in_flight=sum(1 for call in touched if call.began_at <= fault_at),
        errors=dict(sorted(Counter(call.outcome for call in failed).items())),
        served_after_s=max(0.0, last_failed_at - fault_at),
        slowest_s=max(well, default=0.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One drill as it went.

    `detected_s`: the fault was seen, for example the copy left the routes or a successor was
    started. `back_s`: all processes and copies were as before. `lost`: what was recorded or
    acknowledged before and is not there after. `kept`: what went on or was replaced, in words.
    `beside`: how neighbours fared, where a tenant did the harm. `missed`: each target that was not
    met, `late`: those met too late; the drill passed where there is neither. `not_run` says why the
    drill could not be run here.
    """

    drill: str
    target: str
    served: Served | None = None
    beside: Neighbours | None = None
    detected_s: float | None = None
    back_s: float | None = None
    lost: tuple[str, ...] = ()
    kept: str = ""
    missed: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    not_run: str | None = None
    details: dict[str, float | str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether the drill was run and every target met."""
        return not self.missed and not self.late and self.not_run is None

    @property
    def verdict(self) -> str:
        """PASS, FAIL or NOT RUN."""
        if self.not_run is not None:
            return "NOT RUN"
        return "PASS" if self.passed else "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The targets of a drill; None: no target of that kind. Seconds after the fault.

    `errors` are the kinds that calls may see, `all_served_s` the instant after which no call may
    begin that fails.
    """

    detected_s: float | None = None
    back_s: float | None = None
    all_served_s: float = 0.0
    errors: frozenset[str] = frozenset()


def judged(outcome: Outcome, limits: Limits) -> Outcome:
    """The outcome with each target that it did not meet, beside those it says itself."""
    missed, late = list(outcome.missed), list(outcome.late)
    for what, measured_s, limit_s in (
        ("seen", outcome.detected_s, limits.detected_s),
        ("back", outcome.back_s, limits.back_s),
    ):
        if limit_s is not None and measured_s is None:
            missed.append(f"{what}: never, while the drill watched (target {limit_s:g} s)")
        elif limit_s is not None and measured_s is not None and measured_s > limit_s:
            late.append(f"{what} after {measured_s:.2f} s (target {limit_s:g} s)")
    fared = outcome.served
    if fared is not None and (other := sorted(fared.errors.keys() - limits.errors)):
        missed.append(f"errors that clients should not see: {', '.join(other)}")
    elif fared is not None and fared.served_after_s > limits.all_served_s:
        late.append(
            f"calls failed that began {fared.served_after_s:.2f} s after the fault (target "
            f"{limits.all_served_s:g} s)"
        )
    if outcome.lost:
        missed.append(f"lost: {', '.join(outcome.lost)}")
    return replace(outcome, missed=tuple(missed), late=tuple(late))
