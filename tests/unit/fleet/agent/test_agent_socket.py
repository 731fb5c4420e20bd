"""The socket on which an agent listens."""

import socket

from hostelry.fleet.agent.server import loopback_socket


def test_answers_to_gateways_are_not_held_back_until_the_last_one_is_acknowledged() -> None:
    """Asyncio sets TCP_NODELAY for sockets of that protocol number only."""
    with loopback_socket() as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP
