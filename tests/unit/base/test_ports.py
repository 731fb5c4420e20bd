import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.ports import (
    LOWEST,
    MAX_RESERVED,
    OUTGOING,
    _reserved,
    free_ports,
    free_range,
    own_range,
    reserve_port,
)


def test_ports_differ_and_can_be_listened_on() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", port))
            listening.listen(1)


def test_ports_are_none_that_an_outgoing_connection_may_take() -> None:
    own = own_range(OUTGOING)
    assert not own or set(free_ports(50)) <= set(own)


def test_ports_in_a_row_can_all_be_listened_on() -> None:
    ports = free_range(16)
    assert len(ports) == 16
    with ExitStack() as stack:
        for port in ports:
            stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
        with pytest.raises(OSError, match="no 60000 free ports in a row"):
            free_range(60_000)


@cases(
    "text, expected",
    case("the usual range", "32768\t60999\n", range(LOWEST, 32768)),
    case("too few are left below", "11000 65535", range(0)),
    case("none are left below", "1024 65535", range(0)),
    case("an empty file", "", range(0)),
    case("no numbers", "many", range(0)),
)
def test_the_range_is_below_that_of_outgoing_connections(
    tmp_path: Path, text: str, expected: range
) -> None:
    (tmp_path / "range").write_text(text)
    assert own_range(tmp_path / "range") == expected


def test_a_chosen_port_is_reserved_until_its_process_ends() -> None:
    (port,) = free_ports(1)
    code = f"from hostelry.base.ports import reserve_port; print(reserve_port({port}))"
    command = [sys.executable, "-c", code]
    assert not reserve_port(port), "by the process that has given it away"
    assert subprocess.check_output(command, text=True) == "False\n"
    _reserved.pop(port).close()
    assert subprocess.check_output(command, text=True) == "True\n"


def test_only_so_many_ports_stay_reserved() -> None:
    free_ports(20)
    for port in range(LOWEST, LOWEST + MAX_RESERVED):
        reserve_port(port)
    assert len(_reserved) <= MAX_RESERVED


def test_without_a_known_range_the_system_chooses(tmp_path: Path) -> None:
    assert own_range(tmp_path / "none") == range(0)
