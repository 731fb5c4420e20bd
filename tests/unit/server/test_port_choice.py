import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from hostelry.base.errors import TerminalError
from hostelry.base.ports import free_port, free_ports
from hostelry.server.port_choice import Ports, Wish, chosen_ports, try_each
from hostelry.server.ports import bind

HOST = "127.0.0.1"


@pytest.mark.parametrize(
    ("wish", "taken", "expected"),
    [
        pytest.param(Wish(told=None, default=10), (), (10, None), id="the default where free"),
        pytest.param(Wish(told=9, default=10), (), (9, None), id="what was told"),
        pytest.param(Wish(told=None, default=10), (10,), (70, 70), id="else any that is free"),
        pytest.param(Wish(told=None, default=10), (10, 70), (71, 71), id="... and really is"),
        pytest.param(
            Wish(told=None, default=10, chosen_before=60), (10,), (60, 60), id="its own earlier one"
        ),
        pytest.param(
            Wish(told=None, default=10, chosen_before=60),
            (),
            (60, 60),
            id="which it keeps although the default is free again",
        ),
        pytest.param(
            Wish(told=None, default=10, chosen_before=60),
            (60,),
            (10, None),
            id="unless that is taken now",
        ),
        pytest.param(
            Wish(told=9, default=10, chosen_before=60), (), (9, None), id="a flag outdoes all"
        ),
    ],
)
def test_which_port(wish: Wish, taken: tuple[int, ...], expected: tuple[int, int | None]) -> None:
    assert try_each(wish, lambda port: port not in taken, drawn(70)) == expected


def drawn(first: int) -> Callable[[], int]:
    numbers: Iterator[int] = iter(range(first, 2**16))
    return lambda: next(numbers)


@pytest.mark.parametrize(
    "wish",
    [
        pytest.param(Wish(told=9, default=10), id="a port that was told is tried alone"),
        pytest.param(Wish(told=None, default=10), id="no port is free at all"),
    ],
)
def test_no_port(wish: Wish) -> None:
    with pytest.raises(TerminalError, match=r"no port can be had \(tried"):
        try_each(wish, lambda _: False, drawn(70))


def homes(number: int, door: int, s3: int) -> list[Ports]:
    """What so many hostelries that run at once choose by themselves."""
    with ExitStack() as stack:
        return [
            stack.enter_context(
                chosen_ports(HOST, Wish(told=None, default=door), Wish(told=None, default=s3))
            )
            for _ in range(number)
        ]


def test_hostelries_that_start_at_once_choose_different_ports() -> None:
    door, s3 = free_ports(2)
    chosen = homes(4, door, s3)
    assert (chosen[0].door_port, chosen[0].s3_port, chosen[0].said) == (door, s3, ())
    every = [port for it in chosen for port in (it.door_port, it.s3_port)]
    assert len(set(every)) == len(every), "although no object store listens yet"
    for it in chosen[1:]:
        (line,) = it.said
        assert str(it.door_port) in line
        assert str(it.s3_port) in line


@pytest.mark.parametrize("flag", ["--port", "--s3-port"])
def test_a_port_that_was_told_and_is_taken_is_named_with_its_flag(flag: str) -> None:
    with socket.create_server((HOST, 0)) as other:
        taken = other.getsockname()[1]
        told = Wish(told=taken, default=1), Wish(told=None, default=free_port())
        door, s3 = told if flag == "--port" else reversed(told)
        with (
            pytest.raises(TerminalError, match=rf"port {taken} .* choose another with {flag}"),
            chosen_ports(HOST, door, s3),
        ):
            raise AssertionError("it was had")


def test_the_door_never_takes_the_port_that_the_object_store_was_told() -> None:
    port = free_port()
    with chosen_ports(HOST, Wish(told=None, default=port), Wish(told=port, default=1)) as ports:
        assert ports.s3_port == port != ports.door_port


def test_an_inherited_door_and_the_port_of_its_object_store_are_kept() -> None:
    with socket.create_server((HOST, 0)) as store:
        s3 = store.getsockname()[1]
        door = bind(HOST, free_port())
        port = door.getsockname()[1]
        with chosen_ports(
            HOST,
            Wish(told=None, default=port),
            Wish(told=s3, default=1),
            inherited=door,
            own_s3=s3,
        ) as ports:
            assert ports.door is door
            assert (ports.door_port, ports.s3_port) == (port, s3)
