import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.processes.supervision import (
    CRASH_LOOP_DEATHS,
    GATEWAY_LIVENESS,
    HANG_WINDOW_S,
    MAX_DELAY_S,
    PATIENT_LIVENESS,
    STEADY_S,
    Exit,
    Life,
    Liveness,
    LivenessPolicy,
    RestartAfter,
    StartupFailure,
    after_check,
    after_death,
    assume_liveness,
    death_message,
    exit_phrase,
    hung_message,
    is_hung,
    may_be_killed,
    next_check_at,
    restart_delay_s,
)


@cases(
    "deaths_before, lived_s, was_ready, expected",
    case("a first death is quick", 0, 1, True, RestartAfter(delay_s=0.2, quick_deaths=1)),
    case("the wait doubles", 1, 1, True, RestartAfter(delay_s=0.4, quick_deaths=2)),
    case(
        "the wait is bounded and the loop named",
        9,
        1,
        True,
        RestartAfter(delay_s=10.0, quick_deaths=10, crash_looping=True),
    ),
    case("a steady life clears all", 9, STEADY_S, True, RestartAfter(delay_s=0.2, quick_deaths=1)),
    case("a start may fail a second time", 1, 1, False, RestartAfter(delay_s=0.4, quick_deaths=2)),
    case("a third failed start is given up", 2, 1, False, StartupFailure(3)),
    case(
        "a death long after the start is no failed start",
        2,
        STEADY_S,
        False,
        RestartAfter(delay_s=0.2, quick_deaths=1),
    ),
)
def test_after_death(
    deaths_before: int, lived_s: float, was_ready: bool, expected: RestartAfter | StartupFailure
) -> None:
    life = Life(started_at=100.0, quick_deaths=deaths_before)
    assert after_death(life, platform_was_ready=was_ready, now=100.0 + lived_s) == expected


def test_a_service_that_never_stays_is_tried_for_ever_once_the_platform_was_ready() -> None:
    life, now, delays = Life(started_at=0.0), 0.0, []
    for _ in range(1000):
        decision = after_death(life, platform_was_ready=True, now=now)
        assert isinstance(decision, RestartAfter)
        delays.append(decision.delay_s)
        now += decision.delay_s
        life = Life(started_at=now, quick_deaths=decision.quick_deaths)
    assert delays[:7] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0]
    assert set(delays[6:]) == {MAX_DELAY_S}
    assert life.quick_deaths == 1000


def test_the_delay_never_overflows() -> None:
    assert restart_delay_s(10**9) == MAX_DELAY_S


@cases(
    "returncode, phrase",
    case("even a good exit is a death here", 0, "exited with code 0"),
    case("an exit code", 3, "exited with code 3"),
    case("a signal with a name", -9, "was killed by SIGKILL"),
    case("a signal without one", -99, "was killed by signal 99"),
)
def test_exit_phrase(returncode: int, phrase: str) -> None:
    assert exit_phrase(returncode) == phrase


@cases(
    "decision, head",
    case(
        "a restart says when",
        RestartAfter(delay_s=0.2, quick_deaths=1),
        "control exited with code 1; restarting in 0.2 s",
    ),
    case(
        "a crash loop is called one",
        RestartAfter(delay_s=10, quick_deaths=CRASH_LOOP_DEATHS, crash_looping=True),
        "control exited with code 1, 5 times in a row (crash loop); next try in 10 s",
    ),
    case(
        "giving up says so",
        StartupFailure(3),
        "control exited with code 1, 3 times in a row; it cannot start",
    ),
)
def test_death_message(decision: RestartAfter | StartupFailure, head: str) -> None:
    log = "\n".join(f"line {n}\n" for n in range(20))
    lines = death_message("control", Exit(1), decision, log).splitlines()
    assert lines[0] == head
    assert lines[1:] == [f"    control| line {n}" for n in range(12, 20)]


@cases(
    "age_s, misses, expected",
    case("one that has run for a while hangs as any other", 40, 5, True),
    case("... no sooner", 40, 4, False),
    case("a young one may still be starting", 5, 5, False),
)
def test_when_an_adopted_process_hangs(age_s: float, misses: int, expected: bool) -> None:
    liveness = replace(assume_liveness(age_s), misses=misses)
    assert is_hung(liveness, age_s=age_s, policy=PATIENT_LIVENESS) is expected


def test_a_service_that_cannot_start_is_reported_with_the_cause() -> None:
    how = "could not be started: [Errno 28] No space left on device"
    message = death_message("control", how, RestartAfter(delay_s=0.2, quick_deaths=1), "")
    assert message == f"control {how}; restarting in 0.2 s"


def test_a_death_without_output_is_reported_too() -> None:
    message = death_message(
        "gateway", Exit(-15), RestartAfter(delay_s=0.2, quick_deaths=1), "\n \n"
    )
    assert message == "gateway was killed by SIGTERM; restarting in 0.2 s"


@cases(
    "code, shown",
    case("its last error", 255, ["F1128 11:48:12.09 s3.go:421] port 8333 is taken"]),
    case("nothing of an earlier end once killed", -9, ["goroutine 2:", "main.go:7"]),
)
def test_a_go_program_s_end_shows(code: int, shown: list[str]) -> None:
    errors = ["F1128 11:47:12.01 s3.go:1] old", "F1128 11:48:12.09 s3.go:421] port 8333 is taken"]
    log = "\n".join([*errors, *["x.go:1"] * 6, "goroutine 2:", "main.go:7"])
    restart = RestartAfter(delay_s=0.2, quick_deaths=1)
    _, *lines = death_message("objectstore", Exit(code), restart, log).splitlines()
    assert lines[-len(shown) :] == [f"    objectstore| {line}" for line in shown]
    assert ("F1128" in "".join(lines)) is (code == 255)


ANSWER, MISS, LATE = (True, 0.0), (False, 0.0), (False, 30.0)


@cases(
    "checks, age_s, expected",
    case("an answer is life", [ANSWER], 100, False),
    case("four misses are forgiven", [ANSWER, *[MISS] * 4], 100, False),
    case("the fifth in a row is not", [ANSWER, *[MISS] * 5], 100, True),
    case("an answer starts the count", [ANSWER, *[MISS] * 4, ANSWER, *[MISS] * 4], 100, False),
    case("what never answered is starting", [MISS] * 100, 100, False),
    case("no start takes two minutes", [MISS] * 100, 120, True),
    case("on a machine that stands still nobody hangs", [ANSWER, *[LATE] * 100], 300, False),
    case("standing still clears no miss either", [ANSWER, MISS, LATE, *[MISS] * 4], 300, True),
)
def test_who_hangs(checks: list[tuple[bool, float]], age_s: float, expected: bool) -> None:
    policy, liveness = LivenessPolicy(), Liveness()
    for answered, late_s in checks:
        liveness = after_check(liveness, answered=answered, late_s=late_s, policy=policy)
    assert is_hung(liveness, age_s=age_s, policy=policy) is expected


@cases("policy, longest_s", case("door", GATEWAY_LIVENESS, 7), case("others", PATIENT_LIVENESS, 11))
def test_how_long_a_service_may_hang_at_most(policy: LivenessPolicy, longest_s: float) -> None:
    assert policy.every_s + policy.max_misses * policy.timeout_s == longest_s


def test_what_starts_is_asked_often_so_that_it_cannot_hang_unheard() -> None:
    policy = LivenessPolicy()
    started = after_check(Liveness(), answered=True, late_s=0, policy=policy)
    assert 0 < next_check_at(Liveness(), 0.0, 5.0, 77.03, policy) - 5.0 <= 0.1
    assert next_check_at(Liveness(misses=3), 5.0, 5.0, 77.03, policy) == 5.1
    assert next_check_at(started, 5.0, 5.0, 77.5, policy) == pytest.approx(5.5, abs=0.01)


@pytest.mark.parametrize("late_s", [0.0, 2.0])
def test_a_check_after_a_missed_one_does_not_wait_for_the_second(late_s: float) -> None:
    missed = after_check(
        Liveness(has_answered=True), answered=False, late_s=0, policy=LivenessPolicy()
    )
    at = next_check_at(missed, 5.0, 5.0 + late_s, 77.2, LivenessPolicy())
    assert at == max(6.0, 5.0 + late_s)


@cases(
    "has_answered, text",
    case("it answered before", True, "control stopped answering: 5 checks of 2 s"),
    case("it never did", False, "control never answered: 5 checks of 2 s"),
)
def test_a_service_that_hangs_is_named(has_answered: bool, text: str) -> None:
    liveness = Liveness(has_answered=has_answered, misses=5)
    assert hung_message("control", liveness, LivenessPolicy(), None) == (
        f"{text} in a row were missed; killing it"
    )


@cases(
    "ages_s, expected",
    case("a service that hangs is killed", [], True),
    case("it is killed a third time", [30.0, 15.0], True),
    case("a fourth kill would not help either", [45.0, 30.0, 15.0], False),
    case("a kill of ten minutes ago is over", [HANG_WINDOW_S, 30.0, 15.0], True),
)
def test_a_service_that_hangs_again_and_again_is_left(ages_s: list[float], expected: bool) -> None:
    assert may_be_killed([5_000.0 - it for it in ages_s], 5_000.0) is expected


def test_the_message_on_a_service_that_is_left_names_what_ends_it() -> None:
    message = hung_message("control", Liveness(misses=5), LivenessPolicy(), 4711)
    assert "It was killed 3 times within 10 minutes for that" in message
    assert "`kill -9 4711`" in message
