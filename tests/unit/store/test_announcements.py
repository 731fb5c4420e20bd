"""Waits for a topic of a database."""

import threading

from hostelry.store.announcements import Announcements

LONG_S = 60.0


def test_a_wait_ends_at_once_when_the_database_is_closed() -> None:
    announcements, asked, found = Announcements(), threading.Event(), list[bool]()

    def never() -> bool:
        asked.set()
        return False

    def wait() -> None:
        found.append(announcements.wait_until("a", never, LONG_S, lambda: LONG_S))

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert asked.wait(LONG_S)
    announcements.end()
    waiting.join(LONG_S)
    assert found == [False]


def test_a_closed_database_is_asked_nothing_more() -> None:
    announcements = Announcements()
    announcements.end()

    def used() -> bool:
        raise AssertionError("the database was used after its end")

    assert not announcements.wait_until("a", used, LONG_S, lambda: LONG_S)
