"""The sliding window of a minute, against a list of all uses."""

from hypothesis import given
from hypothesis import strategies as st

from hostelry.quotas.windows import (
    NUM_SECONDS,
    WINDOW_S,
    add,
    advance,
    find_wait_s,
    sum_since,
)


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 9)), max_size=30))
def test_a_window_has_the_uses_of_the_last_minute(steps: list[tuple[int, int]]) -> None:
    words, now_s, head_s = [0] * (NUM_SECONDS + 2), 1000, 1000
    uses: list[tuple[int, int]] = []
    for passed, amount in steps:
        now_s += passed
        expected = sum(it for at, it in uses if at >= now_s - WINDOW_S)
        assert sum_since(words, 2, head_s, now_s) == expected
        advance(words, 2, head_s, now_s)
        head_s = now_s
        assert sum(words[2:]) == expected
        assert words[:2] == [0, 0]
        for excess in (1, expected, expected + 1):
            wait_s = find_wait_s(words, 2, now_s, excess) if excess else 1
            if excess > expected:
                assert wait_s is None
                continue
            assert wait_s is not None
            left = [
                sum(it for at, it in uses if at >= now_s + later - WINDOW_S)
                for later in (wait_s - 1, wait_s)
            ]
            assert expected - left[1] >= excess
            assert wait_s == 1 or expected - left[0] < excess
        add(words, 2, now_s, amount)
        uses.append((now_s, amount))


def test_no_interval_of_a_minute_gets_more_than_the_limit() -> None:
    words, head_s, admitted = [0] * NUM_SECONDS, 0, []
    for step in range(4000):  # a request every 0.1 s
        now = 100.0 + step / 10
        advance(words, 0, head_s, int(now))
        head_s = int(now)
        if sum(words) < 50:
            add(words, 0, int(now), 1)
            admitted.append(now)
    most = max(sum(begin <= at < begin + 60 for at in admitted) for begin in admitted)
    assert most == 50
    assert len(admitted) >= 50 * 400 // 61
