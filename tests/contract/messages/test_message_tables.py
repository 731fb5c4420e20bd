"""Messages, deliveries and calls of events: the contract of their tables in every database."""

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.postgres_rig import postgres_database

from hostelry.domain.event_rule import EventCall
from hostelry.domain.messaging import AttributeValue, DeadLetterRule, QueuedMessage
from hostelry.domain.scope import Scope
from hostelry.events.call_rows import SEEN_S, CallRows
from hostelry.messaging import deliveries as deliveries_module
from hostelry.messaging.deliveries import (
    PUBLISHED_S,
    Deliveries,
    NewDelivery,
    RepeatablePublication,
    RepeatedPublicationError,
)
from hostelry.messaging.queue_messages import (
    NewMessage,
    NotInFlightError,
    QueueCounts,
    QueueMessages,
    build_handle,
)
from hostelry.messaging.tables import MessageTables
from hostelry.store.database import open_database
from hostelry.store.protocol import StoreUnavailable

NOW = 1_700_000_000.0
ARN, LETTERS, HOOK = "arn:aws:sqs:r:1:q", "arn:aws:sqs:r:1:dead", "arn:aws:sns:r:1:t:hook"
HERE = Scope("123456789012", "us-west-2")
ODD = "a\0b\x01\x01 \N{PILE OF POO} \\x00 '%s'"


@pytest.fixture(params=["a file", "PostgreSQL"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | str]:
    with contextlib.ExitStack() as stack:
        if request.param == "a file":
            yield tmp_path / "messages.db"
        else:
            yield stack.enter_context(postgres_database())


@pytest.fixture
def tables(where: Path | str) -> Iterator[MessageTables]:
    with contextlib.closing(open_database(where)) as database:
        yield MessageTables(database)


def message(name: str, body: str = "hello", **more: Any) -> NewMessage:
    given = {"sent_at": NOW, "visible_at": NOW, "sender": "me", **more}
    return NewMessage(id=name, queue_arn=ARN, body=body, **given)


def received(
    queues: QueueMessages, now: float = NOW, most: int = 10, dead: DeadLetterRule | None = None
) -> list[QueuedMessage]:
    asked: dict[str, Any] = {"visibility_s": 30.0, "sent_after": now - 600.0, "dead_letters": dead}
    return list(queues.receive(ARN, now, most=most, **asked))


def delivery(body: str = "hello", at: float = NOW) -> NewDelivery:
    return NewDelivery(
        subscription_arn=HOOK, message_id="m", body=body, headers={"X": ODD}, accepted_at=at
    )


def call(name: str) -> EventCall:
    return EventCall(id=name, scope=HERE, source="r", target_arn=ARN, text=ODD, event_at=NOW)


def test_a_message_comes_out_as_it_went_in(tables: MessageTables) -> None:
    queues = QueueMessages(tables)
    attributes = {"kind": AttributeValue(kind="String", value=ODD)}
    queues.send([message("a", ODD, attributes=attributes)])
    [found] = received(queues)
    assert (found.id, found.body, found.attributes, found.receives) == ("a", ODD, attributes, 1)
    assert (found.sent_at, found.first_received_at, found.sender) == (NOW, NOW, "me")
    assert list(queues.queues()) == [ARN]


def test_a_received_message_is_hidden_until_it_is_deleted_or_shown(tables: MessageTables) -> None:
    queues = QueueMessages(tables)
    queues.send([message("a"), message("b", visible_at=NOW + 1)])
    [a] = received(queues)
    assert queues.counts(ARN, NOW, 0.0) == QueueCounts(visible=0, in_flight=1, delayed=1)
    assert received(queues) == []
    assert [it.id for it in received(queues, NOW + 1)] == ["b"]
    queues.change_visibility(ARN, a.handle, NOW + 2, NOW + 1)
    [again] = received(queues, NOW + 2)
    assert (again.id, again.receives, again.first_received_at) == ("a", 2, NOW)
    queues.delete(ARN, a.handle)  # it was received again since
    queues.delete(ARN, build_handle("a", ODD))
    with pytest.raises(NotInFlightError):
        queues.change_visibility(ARN, a.handle, NOW, NOW + 2)
    queues.delete(ARN, again.handle)
    assert queues.next_visible_at(ARN) == NOW + 31
    queues.drop(ARN, NOW)
    assert queues.next_visible_at(ARN) is None


def test_a_message_received_too_often_is_a_dead_letter_and_an_old_one_goes(
    tables: MessageTables,
) -> None:
    queues = QueueMessages(tables)
    queues.send([message("old", sent_at=NOW - 601), message("bad")])
    rule = DeadLetterRule(queue_arn=LETTERS, most_receives=1)
    assert [it.id for it in received(queues, dead=rule)] == ["bad"]
    assert received(queues, NOW + 31, dead=rule) == []
    assert list(queues.queues()) == [LETTERS]


def test_no_message_is_received_twice_by_clients_at_once(tables: MessageTables) -> None:
    queues, found = QueueMessages(tables), list[str]()
    queues.send([message(str(number)) for number in range(60)])

    def take() -> None:
        while got := received(queues, most=4):
            found.extend(it.id for it in got)

    clients = [threading.Thread(target=take) for _ in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert sorted(found, key=int) == [str(number) for number in range(60)]


def test_deliveries_wait_in_their_order_until_they_are_finished(tables: MessageTables) -> None:
    waiting = Deliveries(tables)
    assert waiting.accept([delivery(ODD), delivery("second", NOW + 1)], []) == []
    first, second = waiting.due(HOOK, NOW + 1, 9)
    assert (first.body, second.body, first.headers, first.attempts) == (
        ODD,
        "second",
        {"X": ODD},
        0,
    )
    waiting.postpone(first, NOW + 5)
    assert [it.body for it in waiting.due(HOOK, NOW + 4, 9)] == ["second"]
    waiting.finish(second, [message("letter")])
    assert [it.id for it in received(QueueMessages(tables))] == ["letter"]
    assert (waiting.next_at(HOOK), list(waiting.subscriptions())) == (NOW + 5, [HOOK])
    [again] = waiting.due(HOOK, NOW + 5, 9)
    assert again.attempts == 1
    waiting.drop(HOOK)
    assert waiting.next_at(HOOK) is None


def test_a_publication_is_accepted_once_and_known_for_a_day(
    tables: MessageTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Deliveries(tables)
    for number in range(3):
        once = RepeatablePublication(topic_arn="t", message_id=f"{number}", at=NOW + number)
        waiting.accept([delivery()], [], once)
        with pytest.raises(RepeatedPublicationError):
            waiting.accept([delivery()], [message("m")], once)
    assert len(waiting.due(HOOK, NOW, 9)) == 3
    assert received(QueueMessages(tables)) == []
    waiting.forget_publications(NOW + PUBLISHED_S)
    waiting.accept([], [], RepeatablePublication(topic_arn="t", message_id="0", at=NOW + 3))
    monkeypatch.setattr(deliveries_module, "MAX_PUBLISHED", 2)
    waiting.forget_publications(NOW + PUBLISHED_S)
    waiting.accept([], [], RepeatablePublication(topic_arn="t", message_id="1", at=NOW + 4))
    with pytest.raises(RepeatedPublicationError):
        waiting.accept([], [], RepeatablePublication(topic_arn="t", message_id="0", at=NOW))


def test_too_many_deliveries_of_a_subscription_are_refused(
    tables: MessageTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries_module, "MAX_WAITING", 2)
    waiting = Deliveries(tables)
    third = delivery("third")
    assert waiting.accept([delivery(), delivery(), third], []) == [third]


def test_an_event_is_taken_once_and_its_calls_wait_until_they_are_over(
    tables: MessageTables,
) -> None:
    rows = CallRows(tables)
    assert rows.accept("event", [call("a"), call("b")], NOW)
    assert not rows.accept("event", [call("c")], NOW)
    a, b = rows.due(NOW, 9)
    assert (a.call, b.call, a.attempts, a.is_begun) == (call("a"), call("b"), 0, False)
    rows.begin(a.call)
    assert [it.is_begun for it in rows.due(NOW, 9)] == [True, False]
    rows.postpone(a.call, 1, NOW + 9)
    rows.finish(b.call, [message("letter", json.dumps(ODD))])
    assert (rows.due(NOW + 8, 9), rows.next_at()) == ([], NOW + 9)
    [again] = rows.due(NOW + 9, 9)
    assert (again.attempts, again.is_begun) == (1, False)
    rows.finish(again.call)
    assert rows.next_at() is None
    rows.sweep(NOW + SEEN_S)
    assert rows.accept("event", [], NOW)


def test_messages_beyond_the_limit_are_refused_and_those_kept_go_on(where: Path | str) -> None:
    with contextlib.closing(open_database(where)) as database:
        QueueMessages(MessageTables(database)).send([message("a", "x" * 5000)])
        full = QueueMessages(MessageTables(database, max_bytes=4000))
        with pytest.raises(StoreUnavailable, match="limit of 4000 bytes"):
            full.send([message("b")])
        assert [it.id for it in received(full)] == ["a"]
