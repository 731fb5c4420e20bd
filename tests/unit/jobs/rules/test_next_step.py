import pytest
from tests.cases import case, cases

from hostelry.jobs.rules.next_step import (
    End,
    Later,
    Trouble,
    choose_next_step,
    classify_status,
    notify_again_at,
)

NOW = 100.0


@cases(
    "trouble, attempt, expected",
    case("no copy counts nothing", Trouble.NO_COPY, 3, Later(100.5, counts=False)),
    case("nor does a dead store", Trouble.STORE_DOWN, 3, Later(105.0, counts=False)),
    case("nor our own end", Trouble.STOPPED, 3, Later(100.0, counts=False)),
    case("a 5xx is repeated", Trouble.MODEL_FAILED, 1, Later(101.0, counts=True)),
    case("later and later", Trouble.TIMED_OUT, 2, Later(105.0, counts=True)),
    case("the third attempt is the last", Trouble.MODEL_FAILED, 3, End()),
    case("an output is tried again", Trouble.NO_OUTPUT, 1, Later(101.0, counts=True)),
    case("and given up", Trouble.NO_OUTPUT, 3, End()),
    case("a 4xx is final", Trouble.MODEL_REFUSED, 1, End()),
    case("a missing input is final", Trouble.NO_INPUT, 1, End()),
)
def test_next_step(trouble: Trouble, attempt: int, expected: Later | End) -> None:
    assert choose_next_step(trouble, attempt, NOW) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *((status, None) for status in (200, 204)),
        *((status, Trouble.MODEL_REFUSED) for status in (302, 400, 404)),
        *((status, Trouble.MODEL_FAILED) for status in (429, 500, 503)),
    ],
)
def test_trouble_of_a_models_status(status: int, expected: Trouble | None) -> None:
    assert classify_status(status) is expected


def test_notifications_are_sent_again_less_and_less_often() -> None:
    assert [notify_again_at(it, 0.0) for it in (0, 1, 4, 6, 90)] == [1, 2, 16, 60, 60]
