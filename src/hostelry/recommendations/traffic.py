"""The load of a step: how many users there are, and when a part of it is measured."""

from collections.abc import Sequence

from hostelry.domain.recommendation_job import TrafficPhase

WINDOW_S = 5.0
MIN_ANSWERS = 20  # in a window, unless its phase ends
DEFAULT_PHASE_S = 10.0
DEFAULT_USERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DEFAULT_TRAFFIC = tuple(
    TrafficPhase(initial_users=users, duration_s=DEFAULT_PHASE_S) for users in DEFAULT_USERS
)
MAX_USERS = 1_000
SECONDS_PER_MINUTE = 60.0


def build_stairs(step_s: float, num_steps: int, users_per_step: int) -> tuple[TrafficPhase, ...]:
    """Stairs as phases: each step has `users_per_step` more users than the step before."""
    return tuple(
        TrafficPhase(initial_users=number * users_per_step, duration_s=step_s)
        for number in range(1, num_steps + 1)
    )


def count_most_users(phases: Sequence[TrafficPhase]) -> int:
    """The largest number of users."""
    return max(_count_at(it, it.duration_s) for it in phases)


def get_duration_s(phases: Sequence[TrafficPhase]) -> float:
    """The duration of all phases."""
    return sum(it.duration_s for it in phases)


def count_users(phases: Sequence[TrafficPhase], elapsed_s: float) -> int:
    """The number of users after `elapsed_s`. 0 once the traffic is over."""
    for phase in phases:
        if elapsed_s < phase.duration_s:
            return _count_at(phase, elapsed_s)
        elapsed_s -= phase.duration_s
    return 0


def name_users(num_users: int) -> str:
    """A number of users in words."""
    return f"{num_users} concurrent user{'' if num_users == 1 else 's'}"


def get_phase_end_s(phases: Sequence[TrafficPhase], elapsed_s: float) -> float:
    """When the phase at `elapsed_s` ends, from the start of the traffic."""
    end_s = 0.0
    for phase in phases:
        end_s += phase.duration_s
        if elapsed_s < end_s:
            break
    return end_s


def is_window_over(
    phases: Sequence[TrafficPhase], began_s: float, elapsed_s: float, num_answers: int
) -> bool:
    """Whether the window that began at `began_s` ends now.

    A window ends with its phase at the latest. A rest of a phase that is too short for a window
    belongs to the last window.
    """
    phase_end_s = get_phase_end_s(phases, began_s)
    if elapsed_s >= phase_end_s:
        return True
    is_long = elapsed_s - began_s >= WINDOW_S and num_answers >= MIN_ANSWERS
    return is_long and phase_end_s - elapsed_s >= WINDOW_S


def _count_at(phase: TrafficPhase, elapsed_s: float) -> int:
    return phase.initial_users + int(phase.users_per_minute * elapsed_s / SECONDS_PER_MINUTE)
