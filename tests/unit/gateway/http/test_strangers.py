from dataclasses import dataclass

import pytest

from hostelry.gateway.http.strangers import CrowdedError, Strangers, client_of


@dataclass(eq=False)
class Client:
    address: str = "1.1.1.1"
    is_proven: bool = False
    held_bytes: int = 0
    may_give_way: bool = True
    waits_since_s: float = 0.0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param("10.0.0.1", "10.0.0.2", False, id="two IPv4 addresses"),
        pytest.param("2001:db8::1", "2001:db8::ffff:2", True, id="two of one IPv6 network"),
        pytest.param("2001:db8::1", "2001:db8:0:1::1", False, id="two IPv6 networks"),
        pytest.param("::ffff:10.0.0.1", "10.0.0.1", True, id="an IPv4 address within IPv6"),
        pytest.param("fe80::1%eth0", "fe80::2%eth0", True, id="with a zone"),
    ],
)
def test_who_counts_as_one_client(one: str, other: str, same: bool) -> None:
    assert (client_of(one) == client_of(other)) is same


def test_one_address_displaces_its_own_connections_only() -> None:
    strangers = Strangers[Client](10, 2, 100)
    other = Client("2.2.2.2")
    first, second = Client(), Client()
    assert [strangers.enter(it) for it in (other, first, second)] == [None] * 3
    assert strangers.enter(Client()) is first
    strangers.proven(second)
    third = Client()
    assert strangers.enter(third) is not second
    strangers.proven(third)
    with pytest.raises(CrowdedError, match="2 connections"):
        strangers.enter(Client())
    assert strangers.num_connections == 3


def test_who_has_left_leaves_nothing_behind() -> None:
    strangers = Strangers[Client](1, 1, 100)
    for _ in range(3):
        client = Client()
        assert strangers.enter(client) is None
        strangers.hold(client, 60)
        strangers.leave(client)
        strangers.leave(client)
    assert (strangers.num_connections, strangers.held_bytes) == (0, 0)


def test_strangers_give_way_before_the_known_and_slow_ones_before_quick_ones() -> None:
    strangers = Strangers[Client](10, 10, 100)
    known, slow, quick = Client(), Client(), Client(waits_since_s=9.0)
    for client in (known, slow, quick):
        strangers.enter(client)
        strangers.hold(client, 40)
    strangers.proven(known)
    assert strangers.is_full
    assert strangers.give_way(10.0) == [slow]
    slow.may_give_way = False
    assert strangers.give_way(10.0) == [quick]
