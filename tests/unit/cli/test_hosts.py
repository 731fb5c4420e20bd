"""Checks of a home for --join before any server is called."""

from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.cluster_rig import identity

from hostelry.base.errors import TerminalError
from hostelry.base.peers import PeerRole
from hostelry.cli.hosts import join_platform
from hostelry.home.home import Home, UpConfig, save_config
from hostelry.home.run_file import lock_home

URL = "https://127.0.0.1:1"  # no server listens there
TOKEN = f"h1.{'0' * 64}.{'A' * 43}"
JOINED = UpConfig(control_port=1, controls=("https://control@10.0.0.2:7443",))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home that has joined, by a token that is not known any more."""
    made = Home(tmp_path / "home")
    made.make()
    save_config(made, JOINED)
    identity(made.tls, PeerRole.GATEWAY)
    return made


@cases(
    "url, token",
    case("nothing is named", None, None),
    case("a unit names the platform at each start", URL, None),
    case("and has the token of the first start still", URL, TOKEN),
)
def test_a_home_that_has_joined_asks_no_server(
    home: Home, url: str | None, token: str | None
) -> None:
    join_platform(home, url, token, PeerRole.GATEWAY, "name")


def test_a_home_joins_by_a_token_and_while_it_does_not_run(home: Home, tmp_path: Path) -> None:
    empty = Home(tmp_path / "empty")
    with pytest.raises(TerminalError, match="join-token --role control"):
        join_platform(empty, URL, None, PeerRole.CONTROL, None)
    with pytest.raises(TerminalError, match="--host-name x: a host has its name by --join URL"):
        join_platform(empty, None, None, PeerRole.GATEWAY, "x")
    with lock_home(home), pytest.raises(TerminalError, match="a hostelry already runs on"):
        join_platform(home, URL, TOKEN, PeerRole.GATEWAY, None)
