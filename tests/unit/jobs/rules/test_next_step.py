import pytest

from hostelry.jobs.rules.next_step import (
    End,
    Later,
    Trouble,
    classify_status,
    next_step,
    notify_again_at,
)

NOW = 100.0


@pytest.mark.parametrize(
    ("trouble", "attempt", "expected"),
    [
        pytest.param(Trouble.NO_COPY, 3, Later(100.5, counts=False), id="no copy counts nothing"),
        pytest.param(Trouble.STORE_DOWN, 3, Later(105.0, counts=False), id="nor does a dead store"),
        pytest.param(Trouble.STOPPED, 3, Later(100.0, counts=False), id="nor our own end"),
        pytest.param(Trouble.MODEL_FAILED, 1, Later(101.0, counts=True), id="a 5xx is repeated"),
        pytest.param(Trouble.TIMED_OUT, 2, Later(105.0, counts=True), id="later and later"),
        pytest.param(Trouble.MODEL_FAILED, 3, End(), id="the third attempt is the last"),
        pytest.param(
            Trouble.NO_OUTPUT, 1, Later(101.0, counts=True), id="an output is tried again"
        ),
        pytest.param(Trouble.NO_OUTPUT, 3, End(), id="and given up"),
        pytest.param(Trouble.MODEL_REFUSED, 1, End(), id="a 4xx is final"),
        pytest.param(Trouble.NO_INPUT, 1, End(), id="a missing input is final"),
    ],
)
def test_next_step(trouble: Trouble, attempt: int, expected: Later | End) -> None:
    assert next_step(trouble, attempt, NOW) == expected


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
