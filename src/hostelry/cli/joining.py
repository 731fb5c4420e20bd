"""The options by which a further host joins a platform, and what `--join` does."""

from typing import Annotated

import typer

from hostelry.base.errors import UsageError
from hostelry.base.peer_name import PeerRole
from hostelry.home.home import Home, make_home
from hostelry.home.run_file import only_one

JoinOption = Annotated[
    str | None,
    typer.Option(
        "--join", help="Address of the platform to join: https://HOST:PORT.", show_default=False
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        envvar="HOSTELRY_JOIN_TOKEN",
        help=(
            "Token printed by `hostelry join-token` on the platform. A host that "
            "joins again needs a new token."
        ),
        show_default=False,
    ),
]
HostNameOption = Annotated[
    str | None,
    typer.Option(
        help="Unique name of this host. [default: the machine's name]", show_default=False
    ),
]


def joined(
    home: Home, url: str | None, token: str | None, role: PeerRole, name: str | None
) -> None:
    """Have `home` join the platform at `url`, unless it has; raises HostelryError.

    A new token lets it join again.
    """
    if url is None:
        if name is not None and not home.config.exists():
            raise UsageError(f"--host-name {name}: a host has its name by --join URL")
        return
    if not token:
        if home.config.exists():
            return
        raise UsageError(
            "--join needs a token: print one on the platform's host by `hostelry join-token"
            f" --role {role.value}`"
        )
    # Imported where a host joins: certificates take longer to import than the rest.
    from hostelry.cluster.joining import join, must_join

    with only_one(make_home(home.root)):
        if must_join(token, home, role):
            typer.echo(f"Joined as {join(url, token, home, role, name).uri}.", err=True)
