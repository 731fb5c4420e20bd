import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.ports import free_port, free_ports
from hostelry.home.port_choice import ChosenPorts, PortRequest, choose_ports, try_each
from hostelry.home.ports import bind

HOST = "127.0.0.1"


def any_port(default: int) -> PortRequest:
    """A port that no flag names."""
    return PortRequest(requested=None, default=default)


@cases(
    "asked, taken, expected",
    case("the default where free", any_port(10), (), (10, None)),
    case("the requested one, and again", PortRequest(requested=9, default=10), (), (9, 9)),
    case("else any that is free", any_port(10), (10,), (70, 70)),
    case("... and really is", any_port(10), (10, 70), (71, 71)),
    case(
        "its own earlier one",
        PortRequest(requested=None, default=10, chosen_before=60),
        (10,),
        (60, 60),
    ),
    case(
        "which it keeps although the default is free again",
        PortRequest(requested=None, default=10, chosen_before=60),
        (),
        (60, 60),
    ),
    case(
        "unless that is taken now",
        PortRequest(requested=None, default=10, chosen_before=60),
        (60,),
        (10, None),
    ),
    case("a flag outdoes all", PortRequest(requested=9, default=10, chosen_before=60), (), (9, 9)),
    case(
        "a flag leads back to the default",
        PortRequest(requested=10, default=10, chosen_before=60),
        (),
        (10, None),
    ),
)
def test_which_port(
    asked: PortRequest, taken: tuple[int, ...], expected: tuple[int, int | None]
) -> None:
    assert try_each(asked, lambda port: port not in taken, drawn(70)) == expected


def drawn(first: int) -> Callable[[], int]:
    numbers: Iterator[int] = iter(range(first, 2**16))
    return lambda: next(numbers)


@cases(
    "asked",
    case("a requested port is tried alone", PortRequest(requested=9, default=10)),
    case("no port is free at all", any_port(10)),
)
def test_no_port(asked: PortRequest) -> None:
    with pytest.raises(TerminalError, match=r"no port is free \(tried"):
        try_each(asked, lambda _: False, drawn(70))


def homes(number: int, gateway: int, s3: int) -> list[ChosenPorts]:
    """The ports of hostelries that start at once, without flags."""
    with ExitStack() as stack:
        return [
            stack.enter_context(
                choose_ports(HOST, any_port(gateway), any_port(s3)),
            )
            for _ in range(number)
        ]


def test_hostelries_that_start_at_once_choose_different_ports() -> None:
    gateway, s3 = free_ports(2)
    chosen = homes(4, gateway, s3)
    assert (chosen[0].gateway_port, chosen[0].s3_port, chosen[0].notes) == (gateway, s3, ())
    every = [port for it in chosen for port in (it.gateway_port, it.s3_port)]
    assert len(set(every)) == len(every), "although no object store listens yet"
    for ports in chosen[1:]:
        first, second = ports.notes
        assert first == (
            f"port {gateway} is another program's: the gateway is at {ports.gateway_port}, "
            "which is kept; --port chooses another"
        )
        assert f"the object store is at {ports.s3_port}" in second


def test_ports_of_the_last_start_are_used_again_without_a_word() -> None:
    first, second, gateway, s3 = free_ports(4)
    with choose_ports(
        HOST,
        PortRequest(requested=None, default=first, chosen_before=gateway),
        PortRequest(requested=None, default=second, chosen_before=s3),
    ) as ports:
        assert (ports.gateway_port, ports.chosen_gateway) == (gateway, gateway)
        assert (ports.s3_port, ports.chosen_s3, ports.notes) == (s3, s3, ())


def test_an_address_of_another_machine_is_refused_with_its_flag() -> None:
    with (
        pytest.raises(UsageError, match=r"--host 203\.0\.113\.7: this machine has no such address"),
        choose_ports("203.0.113.7", any_port(free_port()), None),
    ):
        raise AssertionError("it was had")


@pytest.mark.parametrize("flag", ["--port", "--s3-port"])
def test_a_requested_port_that_is_taken_is_named_with_its_flag(flag: str) -> None:
    with socket.create_server((HOST, 0)) as other:
        taken = other.getsockname()[1]
        requests = PortRequest(requested=taken, default=1), any_port(free_port())
        gateway, s3 = requests if flag == "--port" else reversed(requests)
        with (
            pytest.raises(TerminalError, match=rf"port {taken} .* choose another with {flag}"),
            choose_ports(HOST, gateway, s3),
        ):
            raise AssertionError("it was had")


def test_the_gateway_never_takes_the_port_requested_for_the_object_store() -> None:
    port = free_port()
    with choose_ports(HOST, any_port(port), PortRequest(requested=port, default=1)) as ports:
        assert ports.s3_port == port != ports.gateway_port


def test_an_inherited_listener_and_the_port_of_its_object_store_are_kept() -> None:
    with socket.create_server((HOST, 0)) as store:
        s3 = store.getsockname()[1]
        listener = bind(HOST, free_port())
        port = listener.getsockname()[1]
        with choose_ports(
            HOST,
            any_port(port),
            PortRequest(requested=s3, default=1),
            inherited=listener,
            own_s3=s3,
        ) as ports:
            assert ports.listener is listener
            assert (ports.gateway_port, ports.s3_port) == (port, s3)
