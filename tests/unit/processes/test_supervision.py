from dataclasses import replace

import pytest

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


@pytest.mark.parametrize(
    ("deaths_before", "lived_s", "was_ready", "expected"),
    [
        pytest.param(
            0, 1, True, RestartAfter(delay_s=0.2, quick_deaths=1), id="a first death is quick"
        ),
        pytest.param(1, 1, True, RestartAfter(delay_s=0.4, quick_deaths=2), id="the wait doubles"),
        pytest.param(
            9,
            1,
            True,
            RestartAfter(delay_s=10.0, quick_deaths=10, crash_looping=True),
            id="the wait is bounded and the loop named",
        ),
        pytest.param(
            9,
            STEADY_S,
            True,
            RestartAfter(delay_s=0.2, quick_deaths=1),
            id="a steady life clears all",
        ),
        pytest.param(
            1,
            1,
            False,
            RestartAfter(delay_s=0.4, quick_deaths=2),
            id="a start may fail a second time",
        ),
        pytest.param(2, 1, False, StartupFailure(3), id="a third failed start is given up"),
        pytest.param(
            2,
            STEADY_S,
            False,
            RestartAfter(delay_s=0.2, quick_deaths=1),
            id="a death long after the start is no failed start",
        ),
    ],
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


@pytest.mark.parametrize(
    ("returncode", "phrase"),
    [
        pytest.param(0, "exited with code 0", id="even a good exit is a death here"),
        pytest.param(3, "exited with code 3", id="an exit code"),
        pytest.param(-9, "was killed by SIGKILL", id="a signal with a name"),
        pytest.param(-99, "was killed by signal 99", id="a signal without one"),
    ],
)
def test_exit_phrase(returncode: int, phrase: str) -> None:
    assert exit_phrase(returncode) == phrase


@pytest.mark.parametrize(
    ("decision", "head"),
    [
        pytest.param(
            RestartAfter(delay_s=0.2, quick_deaths=1),
            "control exited with code 1; restarting in 0.2 s",
            id="a restart says when",
        ),
        pytest.param(
            RestartAfter(delay_s=10, quick_deaths=CRASH_LOOP_DEATHS, crash_looping=True),
            "control exited with code 1, 5 times in a row (crash loop); next try in 10 s",
            id="a crash loop is called one",
        ),
        pytest.param(
            StartupFailure(3),
            "control exited with code 1, 3 times in a row; it cannot start",
            id="giving up says so",
        ),
    ],
)
def test_death_message(decision: RestartAfter | StartupFailure, head: str) -> None:
    log = "\n".join(f"line {n}\n" for n in range(20))
    lines = death_message("control", Exit(1), decision, log).splitlines()
    assert lines[0] == head
    assert lines[1:] == [f"    control| line {n}" for n in range(12, 20)]


@pytest.mark.parametrize(
    ("age_s", "misses", "expected"),
    [
        pytest.param(40, 5, True, id="one that has run for a while hangs as any other"),
        pytest.param(40, 4, False, id="... no sooner"),
        pytest.param(5, 5, False, id="a young one may still be starting"),
    ],
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


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        pytest.param(255, ["F1128 11:48:12.09 s3.go:421] port 8333 is taken"], id="its last error"),
        pytest.param(-9, ["goroutine 2:", "main.go:7"], id="nothing of an earlier end once killed"),
    ],
)
def test_a_go_program_s_end_shows(code: int, shown: list[str]) -> None:
    errors = ["F1128 11:47:12.01 s3.go:1] old", "F1128 11:48:12.09 s3.go:421] port 8333 is taken"]
    log = "\n".join([*errors, *["x.go:1"] * 6, "goroutine 2:", "main.go:7"])
    restart = RestartAfter(delay_s=0.2, quick_deaths=1)
    _, *lines = death_message("objectstore", Exit(code), restart, log).splitlines()
    assert lines[-len(shown) :] == [f"    objectstore| {line}" for line in shown]
    assert ("F1128" in "".join(lines)) is (code == 255)


ANSWER, MISS, LATE = (True, 0.0), (False, 0.0), (False, 30.0)


@pytest.mark.parametrize(
    ("checks", "age_s", "expected"),
    [
        pytest.param([ANSWER], 100, False, id="an answer is life"),
        pytest.param([ANSWER, *[MISS] * 4], 100, False, id="four misses are forgiven"),
        pytest.param([ANSWER, *[MISS] * 5], 100, True, id="the fifth in a row is not"),
        pytest.param(
            [ANSWER, *[MISS] * 4, ANSWER, *[MISS] * 4], 100, False, id="an answer starts the count"
        ),
        pytest.param([MISS] * 100, 100, False, id="what never answered is starting"),
        pytest.param([MISS] * 100, 120, True, id="no start takes two minutes"),
        pytest.param(
            [ANSWER, *[LATE] * 100], 300, False, id="on a machine that stands still nobody hangs"
        ),
        pytest.param(
            [ANSWER, MISS, LATE, *[MISS] * 4], 300, True, id="standing still clears no miss either"
        ),
    ],
)
def test_who_hangs(checks: list[tuple[bool, float]], age_s: float, expected: bool) -> None:
    policy, liveness = LivenessPolicy(), Liveness()
    for answered, late_s in checks:
        liveness = after_check(liveness, answered=answered, late_s=late_s, policy=policy)
    assert is_hung(liveness, age_s=age_s, policy=policy) is expected


@pytest.mark.parametrize(
    ("policy", "longest_s"),
    [pytest.param(GATEWAY_LIVENESS, 7, id="door"), pytest.param(PATIENT_LIVENESS, 11, id="others")],
)
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


@pytest.mark.parametrize(
    ("has_answered", "text"),
    [
        pytest.param(True, "control stopped answering: 5 checks of 2 s", id="it answered before"),
        pytest.param(False, "control never answered: 5 checks of 2 s", id="it never did"),
    ],
)
def test_a_service_that_hangs_is_named(has_answered: bool, text: str) -> None:
    liveness = Liveness(has_answered=has_answered, misses=5)
    assert hung_message("control", liveness, LivenessPolicy(), None) == (
        f"{text} in a row were missed; killing it"
    )


@pytest.mark.parametrize(
    ("ages_s", "expected"),
    [
        pytest.param([], True, id="a service that hangs is killed"),
        pytest.param([30.0, 15.0], True, id="it is killed a third time"),
        pytest.param([45.0, 30.0, 15.0], False, id="a fourth kill would not help either"),
        pytest.param([HANG_WINDOW_S, 30.0, 15.0], True, id="a kill of ten minutes ago is over"),
    ],
)
def test_a_service_that_hangs_again_and_again_is_left(ages_s: list[float], expected: bool) -> None:
    assert may_be_killed([5_000.0 - it for it in ages_s], 5_000.0) is expected


def test_the_message_on_a_service_that_is_left_names_what_ends_it() -> None:
    message = hung_message("control", Liveness(misses=5), LivenessPolicy(), 4711)
    assert "It was killed 3 times within 10 minutes for that" in message
    assert "`kill -9 4711`" in message
