from dataclasses import dataclass

import pytest
from tests.cases import case, cases

from hostelry.dataplane.http.connection_limits import (
    ConnectionLimitError,
    ConnectionLimits,
    find_client,
)


@dataclass(eq=False)
class Client:
    address: str = "1.1.1.1"
    is_verified: bool = False
    held_bytes: int = 0
    can_be_shed: bool = True
    reading_since_s: float = 0.0


@cases(
    "one, other, same",
    case("two IPv4 addresses", "10.0.0.1", "10.0.0.2", False),
    case("two of one IPv6 network", "2001:db8::1", "2001:db8::ffff:2", True),
    case("two IPv6 networks", "2001:db8::1", "2001:db8:0:1::1", False),
    case("an IPv4 address within IPv6", "::ffff:10.0.0.1", "10.0.0.1", True),
    case("with a zone", "fe80::1%eth0", "fe80::2%eth0", True),
)
def test_who_counts_as_one_client(one: str, other: str, same: bool) -> None:
    assert (find_client(one) == find_client(other)) is same


def test_an_address_at_its_limit_sheds_its_own_connections_only() -> None:
    limits = ConnectionLimits[Client](10, 2, 100)
    other = Client("2.2.2.2")
    first, second = Client(), Client()
    assert [limits.add(it) for it in (other, first, second)] == [None] * 3
    assert limits.add(Client()) is first
    limits.note_verified(second)
    third = Client()
    assert limits.add(third) is not second
    limits.note_verified(third)
    with pytest.raises(ConnectionLimitError, match="2 connections"):
        limits.add(Client())
    assert limits.num_connections == 3


def test_a_removed_connection_leaves_nothing_behind() -> None:
    limits = ConnectionLimits[Client](1, 1, 100)
    for _ in range(3):
        client = Client()
        assert limits.add(client) is None
        limits.hold(client, 60)
        limits.remove(client)
        limits.remove(client)
    assert (limits.num_connections, limits.held_bytes) == (0, 0)


def test_unverified_connections_are_shed_first_and_slow_ones_before_quick_ones() -> None:
    limits = ConnectionLimits[Client](10, 10, 100)
    known, slow, quick = Client(), Client(), Client(reading_since_s=9.0)
    for client in (known, slow, quick):
        limits.add(client)
        limits.hold(client, 40)
    limits.note_verified(known)
    assert limits.is_full
    assert limits.to_shed(10.0) == [slow]
    slow.can_be_shed = False
    assert limits.to_shed(10.0) == [quick]
