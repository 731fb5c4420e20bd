"""A sliding window of a minute, as counts of single seconds.

A window is `NUM_SECONDS` counts from the offset `at` of `words`. The count of second s is at
`at + s % NUM_SECONDS`. The window holds the current second and the 60 seconds before it. So no
interval of 60 s gets more than the limit, and a use leaves the window after 60 to 61 s.
"""

from collections.abc import MutableSequence

WINDOW_S = 60
NUM_SECONDS = WINDOW_S + 1
Words = MutableSequence[int] | memoryview


def advance(words: Words, at: int, head_s: int, now_s: int) -> None:
    """Clear the seconds after `head_s`, the newest second with a count, until `now_s`."""
    num_passed = min(now_s - head_s, NUM_SECONDS)
    for second in range(now_s - num_passed + 1, now_s + 1):
        words[at + second % NUM_SECONDS] = 0


def add(words: Words, at: int, now_s: int, amount: int) -> None:
    """Count `amount` in the current second."""
    words[at + now_s % NUM_SECONDS] += amount


def sum_since(words: Words, at: int, head_s: int, now_s: int) -> int:
    """The use within the window, which is read without a change. `head_s` is its newest second."""
    oldest_s = max(now_s - WINDOW_S, head_s - WINDOW_S)
    return sum(words[at + it % NUM_SECONDS] for it in range(oldest_s, min(head_s, now_s) + 1))


def find_wait_s(words: Words, at: int, now_s: int, excess: int) -> int | None:
    """Seconds until `excess` of the use has left the window. None if the use is smaller."""
    gone = 0
    for second in range(now_s - WINDOW_S, now_s + 1):
        gone += words[at + second % NUM_SECONDS]
        if gone >= excess:
            return max(1, second + NUM_SECONDS - now_s)
    return None
