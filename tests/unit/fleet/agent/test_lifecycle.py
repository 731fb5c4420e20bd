import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.copy import AdapterPlacement, CopySpec, LastEnd
from hostelry.domain.model import ArtifactSource, Container, SourceKind
from hostelry.fleet.agent.lifecycle import (
    Attempts,
    CopyPlan,
    CopyPolicy,
    Ending,
    EndKind,
    FailCopy,
    PingHealth,
    PingVerdict,
    RestartCopy,
    backoff_s,
    decide_after_end,
    get_recent_end,
    ping_limit_s,
    ping_verdict,
    plan_copies,
    ready_pause_s,
    spec_digest,
    start_limit,
    starting_pause_s,
    update_health,
)

POLICY = CopyPolicy()
ADAPTER = AdapterPlacement(
    id="es@1",
    alias="es",
    source=ArtifactSource(uri="s3://b/es.tar.gz", kind=SourceKind.ARCHIVE),
)


def spec(copy_id: str, image: str = "lmi", adapters: tuple[AdapterPlacement, ...] = ()) -> CopySpec:
    return CopySpec(
        id=copy_id,
        owner="component/x",
        container=Container(image=image),
        requirements=None,
        download_timeout_s=60.0,
        startup_timeout_s=60.0,
        adapters=adapters,
    )


@cases(
    "environment, seconds, covers",
    case("a model that was downloaded before", {}, 60, "its start"),
    case("a hub id", {"HF_MODEL_ID": "org/m"}, 100, "hub: 40 s for the download"),
    case("a hub id of one word", {"OPTION_MODEL_ID": "gpt2"}, 100, "gpt2"),
    case("a folder", {"HF_MODEL_ID": "/opt/ml/model"}, 60, "its start"),
    case("a folder beside the server", {"HF_MODEL_ID": "./m"}, 60, "its start"),
    case("a prefix, fetched before", {"HF_MODEL_ID": "s3://b/p"}, 60, "its start"),
    case("OPTION_MODEL_ID decides where both are set",
        {"OPTION_MODEL_ID": "/opt/ml/model", "HF_MODEL_ID": "org/m"}, 60, "its start"),
    case("an empty variable is unset", {"HF_MODEL_ID": ""}, 60, "its start"),
)  # fmt: skip
def test_how_long_a_start_may_take(
    environment: dict[str, str], seconds: float, covers: str
) -> None:
    container = Container(image="lmi", environment=environment)
    limit = start_limit(replace(spec("c"), container=container, download_timeout_s=40.0))
    assert limit.seconds == seconds
    assert covers in limit.covers


def ending(kind: EndKind, ready_for_s: float | None = None) -> Ending:
    return Ending(kind=kind, detail="because", ready_for_s=ready_for_s)


@pytest.mark.parametrize(
    ("attempts", "end", "expected"),
    [
        pytest.param(
            Attempts(),
            ending(EndKind.EXITED),
            RestartCopy(delay_s=0),
            id="a first failed start is tried again at once",
        ),
        pytest.param(
            Attempts(failed_starts=1),
            ending(EndKind.EXITED),
            RestartCopy(delay_s=1),
            id="a second failed start waits a moment",
        ),
        pytest.param(
            Attempts(failed_starts=2),
            ending(EndKind.EXITED),
            FailCopy(),
            id="a third failed start in a row is the last",
        ),
        pytest.param(
            Attempts(),
            ending(EndKind.STARTUP_TIMEOUT),
            FailCopy(),
            id="a copy that never becomes ready in time is given up",
        ),
        pytest.param(
            Attempts(),
            ending(EndKind.PROBE_REFUSED),
            FailCopy(),
            id="one that refuses the probe too",
        ),
        pytest.param(
            Attempts(), ending(EndKind.NOT_STARTED), FailCopy(), id="a program that is not there"
        ),
        pytest.param(
            Attempts(ever_ready=True),
            ending(EndKind.HUNG, ready_for_s=5),
            RestartCopy(delay_s=0),
            id="the first death of a copy that was ready waits for nothing",
        ),
        pytest.param(
            Attempts(ever_ready=True),  # as its agent's successor knows it
            ending(EndKind.NOT_STARTED),
            RestartCopy(delay_s=0),
            id="nor does that of an adopted copy",
        ),
        pytest.param(
            Attempts(ever_ready=True, crashes=1),
            ending(EndKind.EXITED),
            RestartCopy(delay_s=1),
            id="a restart that does not get ready is the second death",
        ),
        pytest.param(
            Attempts(ever_ready=True, crashes=3),
            ending(EndKind.EXITED, ready_for_s=5),
            RestartCopy(delay_s=4),
            id="a crash loop waits longer each time",
        ),
        pytest.param(
            Attempts(ever_ready=True, crashes=9),
            ending(EndKind.EXITED, ready_for_s=60),
            RestartCopy(delay_s=0),
            id="a copy that was stable is restarted at once",
        ),
        pytest.param(
            Attempts(ever_ready=True, crashes=20),
            ending(EndKind.STARTUP_TIMEOUT),
            RestartCopy(delay_s=60),
            id="a copy that was ready once is never given up",
        ),
        pytest.param(
            Attempts(ever_ready=True, crashes=5000),
            ending(EndKind.HUNG, ready_for_s=1),
            RestartCopy(delay_s=60),
            id="thousands of crashes overflow nothing",
        ),
    ],
)
def test_after_end(attempts: Attempts, end: Ending, expected: RestartCopy | FailCopy) -> None:
    assert decide_after_end(attempts, end, POLICY)[1] == expected


def test_a_copy_that_crashes_once_ready_counts_no_failed_start() -> None:
    attempts, _ = decide_after_end(Attempts(failed_starts=2), ending(EndKind.EXITED, 3.0), POLICY)
    assert attempts == Attempts(ever_ready=True, failed_starts=2, crashes=1)
    assert isinstance(decide_after_end(attempts, ending(EndKind.EXITED), POLICY)[1], RestartCopy)


def test_a_crash_loop_waits_longer_each_time_until_the_copy_was_stable() -> None:
    """Source: Kubernetes, "Pod Lifecycle": at once, then twice as long each time, to a limit."""
    attempts, waits_s = Attempts(), []
    for ready_for_s in [2.0] * 9 + [60.0, 2.0]:
        attempts, step = decide_after_end(attempts, ending(EndKind.EXITED, ready_for_s), POLICY)
        assert isinstance(step, RestartCopy)
        waits_s.append(step.delay_s)
    assert waits_s == [0, 1, 2, 4, 8, 16, 32, 60, 60, 0, 1]


@given(st.lists(st.none() | st.floats(0, 1e6), max_size=50))
def test_no_two_restarts_in_a_row_are_at_once_unless_a_stable_life_lies_between(
    lives_s: list[float | None],
) -> None:
    attempts, before_s = Attempts(ever_ready=True), POLICY.first_backoff_s
    for ready_for_s in lives_s:
        attempts, step = decide_after_end(attempts, ending(EndKind.EXITED, ready_for_s), POLICY)
        assert isinstance(step, RestartCopy)
        assert step.delay_s <= POLICY.max_backoff_s
        steady = ready_for_s is not None and ready_for_s >= POLICY.stable_after_s
        assert step.delay_s > 0 or before_s > 0 or steady
        before_s = step.delay_s


def test_backoff_grows_from_one_to_sixty_seconds() -> None:
    assert [backoff_s(n, POLICY) for n in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]


ANSWER, REFUSED, SLEPT = (True, 1.0), (False, 1.0), (False, 3600.0)


@cases(
    "pings, expected",
    case("an answer", [ANSWER], PingVerdict.HEALTHY),
    case("two quick misses are forgiven", [REFUSED, REFUSED], PingVerdict.HEALTHY),
    case("three misses are not", [REFUSED] * 3, PingVerdict.UNHEALTHY),
    case("three seconds of silence are forgiven", [(False, 3.0)], PingVerdict.HEALTHY),
    case("four are not", [(False, 3.0), (False, 1.0)], PingVerdict.UNHEALTHY),
    case("it comes back", [*[REFUSED] * 3, ANSWER], PingVerdict.HEALTHY),
    case("eleven seconds away", [REFUSED] * 11, PingVerdict.UNHEALTHY),
    case("twelve seconds away", [REFUSED] * 12, PingVerdict.HUNG),
    case("a new count", [*[REFUSED] * 11, ANSWER, REFUSED], PingVerdict.HEALTHY),
    case("an agent that slept for an hour blames nobody", [SLEPT], PingVerdict.HEALTHY),
)
def test_health(pings: list[tuple[bool, float]], expected: PingVerdict) -> None:
    health = PingHealth()
    for answered, waited_s in pings:
        health = update_health(health, answered, waited_s, 0.0, POLICY)
    assert ping_verdict(health, POLICY) is expected


@cases(
    "took_s, num_copies, pause_s",
    case("a copy alone, each second", 0.003, 1, 1.0),
    case("also one that answers late", 2.0, 1, 1.0),
    case("300 copies, 100 a second", 0.003, 300, 3.0),
    case("300 on a machine without a free CPU, four at once", 0.1, 300, 7.5),
    case("each of them twice a minute in any case", 2.0, 300, 30.0),
)
def test_pings_are_shared_by_their_number_and_their_time(
    took_s: float, num_copies: int, pause_s: float
) -> None:
    assert ready_pause_s(took_s, False, num_copies, POLICY) == pause_s


@cases(
    "starved_s, expected",
    case("one that had a CPU, or wanted none, hangs", 0.0, PingVerdict.HUNG),
    case("and one that had it for half of the time", 1.5, PingVerdict.HUNG),
    case("one without a CPU is out, and is not killed", 2.9, PingVerdict.UNHEALTHY),
    case("and so does one whose first thread is another", -9.0, PingVerdict.HUNG),
)
def test_a_copy_that_waits_for_a_cpu_does_not_hang(starved_s: float, expected: PingVerdict) -> None:
    health = PingHealth()
    for _ in range(8):
        health = update_health(health, False, 3.0, starved_s, POLICY)
    assert ping_verdict(health, POLICY) is expected


@cases(
    "num_copies, out_after_s",
    case("a copy alone", 1, 4.0),
    case("one of as many as are pinged each second", 100, 4.0),
    case("one of three hundred", 300, 6.0),
    case("one of a thousand", 1000, 13.0),
)
def test_a_copy_that_stops_at_the_worst_moment_is_soon_out_of_the_routes(
    num_copies: int, out_after_s: float
) -> None:
    """It stops right after an answer, and the next ping is sent a whole pause later."""
    health, now = PingHealth(), 0.0
    while ping_verdict(health, POLICY) is PingVerdict.HEALTHY:
        limit_s = ping_limit_s(health, POLICY)
        pause_s = ready_pause_s(0.003, health.misses > 0, num_copies, POLICY)
        waited_s = limit_s if health.misses else pause_s + limit_s
        health, now = update_health(health, False, waited_s, 0.0, POLICY), now + waited_s
    assert now == out_after_s


@cases(
    "silent_s, expected",
    case("the contract's two seconds", 0.0, 2.0),
    case("no longer than the decision waits", 3.0, 1.0),
    case("once it is out, two seconds again", 4.0, 2.0),
    case("and for ever", 60.0, 2.0),
)
def test_how_long_a_ping_may_take(silent_s: float, expected: float) -> None:
    assert ping_limit_s(PingHealth(misses=1, silent_s=silent_s), POLICY) == expected


@cases(
    "age_s, expected",
    case("a forked process is ready soon", 0.0, 0.03),
    case("any other takes its time", 1.0, 0.2),
    case("a large model too", 500.0, 0.2),
)
def test_how_often_a_process_that_starts_is_asked(age_s: float, expected: float) -> None:
    assert starting_pause_s(age_s, POLICY) == expected


def test_plan_starts_what_is_missing_and_stops_what_is_not_named() -> None:
    plan = plan_copies([spec("a"), spec("b")], {"b": spec("b"), "c": spec("c")}, set())
    assert plan == CopyPlan(start=(spec("a"),), stop=("c",))


def test_the_same_desired_copies_twice_need_no_change() -> None:
    assert plan_copies([spec("a")], {"a": spec("a")}, set()) == CopyPlan()


def test_changed_adapters_are_passed_on_to_the_running_copy() -> None:
    changed = spec("a", adapters=(ADAPTER,))
    assert plan_copies([changed], {"a": spec("a")}, set()) == CopyPlan(adapt=(changed,))


def test_another_container_under_the_same_id_stops_first_and_starts_once_it_is_gone() -> None:
    desired = [spec("a", image="new")]
    assert plan_copies(desired, {"a": spec("a")}, set()) == CopyPlan(stop=("a",))
    assert plan_copies(desired, {}, {"a"}) == CopyPlan()
    assert plan_copies(desired, {}, set()) == CopyPlan(start=(desired[0],))


def test_digest_ignores_adapters_and_nothing_else() -> None:
    assert spec_digest(spec("a")) == spec_digest(spec("a", adapters=(ADAPTER,)))
    others = [spec("a", image="x"), replace(spec("a"), startup_timeout_s=61.0)]
    assert spec_digest(spec("a")) not in [spec_digest(other) for other in others]


def test_digest_does_not_depend_on_the_order_of_variables() -> None:
    one = replace(spec("a"), container=Container(image="i", environment={"A": "1", "B": "2"}))
    two = replace(spec("a"), container=Container(image="i", environment={"B": "2", "A": "1"}))
    assert spec_digest(one) == spec_digest(two)


@cases(
    "age_s, reported",
    case("just now", 0.0, True),
    case("almost an hour ago", 3599.0, True),
    case("an hour ago", 3600.0, False),
    case("later than now: the clock was set back", -5.0, True),
)
def test_how_a_copy_ended_is_reported_for_an_hour(age_s: float, reported: bool) -> None:
    end = LastEnd(at=50_000.0, cause="It ended.")
    assert get_recent_end(end, end.at + age_s, POLICY) == (end if reported else None)
    assert get_recent_end(None, end.at, POLICY) is None
