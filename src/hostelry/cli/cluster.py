"""`hostelry join-token` and `hostelry certificates`: membership of hosts in a platform."""

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.certificates import read_facts, split
from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.peers import PeerRole
from hostelry.base.tls import TlsFolder
from hostelry.cli.control_requests import document, send
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cluster.authority import Authority
from hostelry.cluster.host_files import HostFiles
from hostelry.cluster.join_routes import PROOF_HEADER, TokenRequest, build_proof
from hostelry.cluster.join_token import parse_seconds
from hostelry.home.home import Credentials, Home

certificates = typer.Typer(
    name="certificates",
    help="Certificates between the hosts of a platform: show them, replace the authority.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def join_token(
    home: HomeOption = None,
    role: Annotated[
        str, typer.Option(help="What the host will run: gateway, control or agent.")
    ] = "gateway",
    expires: Annotated[
        str, typer.Option(help="Lifetime of the token, for example 15m or 2h.")
    ] = "15m",
    as_json: JsonOption = False,
) -> None:
    """Print a token with which one host can join this platform.

    Example: hostelry join-token --role gateway --expires 15m
    """
    expires_s = parse_seconds(expires)
    if role not in {it.value for it in PeerRole}:
        raise UsageError(f"--role {role}: expected gateway, control or agent")
    at = home_at(home)
    config, credentials = load_home(at)
    if config.cluster_host is None:
        raise TerminalError(
            "this platform has no address for other hosts: start it by "
            "`hostelry up --cluster-host ADDRESS`"
        )
    authority = _authority(at, credentials)
    body = msgspec.json.encode(TokenRequest(role=role, expires_s=expires_s))
    proof = {PROOF_HEADER: build_proof(authority, body)}
    answer = send(config, credentials, "POST", "/internal/join-tokens", headers=proof, content=body)
    found = document(answer)
    if answer.status_code != 200:
        raise TerminalError(str(found.get("reason")))
    url = config.control_address.replace("://control@", "://")
    if as_json:
        print_json({"token": found["token"], "url": url, "expires_at": found["expires_at"]})
        return
    typer.echo(found["token"])
    typer.echo(f"for one host of role {role}, for {expires}: --join {url}", err=True)


@certificates.command("show")
def show(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show this host's certificate and the authorities that it trusts.

    Example: hostelry certificates show
    """
    at = home_at(home)
    load_home(at)
    folder = TlsFolder(at.tls)
    try:
        own = read_facts(folder.identity.read_bytes())
        trusted = [read_facts(it) for it in split(folder.trusted.read_bytes())]
    except FileNotFoundError:
        raise TerminalError(
            f"{at.root} has no certificates: it is not a host of a cluster"
        ) from None
    except ValueError as error:
        raise TerminalError(f"{folder.root}: {error}") from None
    name = ", ".join(own.uris)
    found: dict[str, Any] = {
        "name": name,
        "issuer": own.issuer,
        "not_after": own.not_after,
        "renew_at": own.renew_at(),
        "issues": folder.authority.exists(),
        "trusted": [
            {
                "subject": authority.subject,
                "not_after": authority.not_after,
                "fingerprint": authority.fingerprint,
            }
            for authority in trusted
        ],
    }
    if as_json:
        print_json(found)
        return
    typer.echo(f"{name}\n  signed by  {own.issuer}")
    typer.echo(f"  valid to   {_date(own.not_after)}, renewed from {_date(own.renew_at())}")
    for authority in trusted:
        typer.echo(f"trusts {authority.subject} to {_date(authority.not_after)}")
        typer.echo(f"  sha256 {authority.fingerprint}")


@certificates.command("rotate")
def rotate(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Replace the certificate authority. Every host gets a new certificate, and no request fails.

    Hosts trust the new authority at once, and it signs half an hour later. The old authority is
    trusted until its last certificate has expired.

    Example: hostelry certificates rotate
    """
    at = home_at(home)
    _, credentials = load_home(at)
    now = SystemClock().now()
    files = HostFiles(TlsFolder(at.tls), credentials.cluster_id)
    rotated = _authority(at, credentials).rotate(now)
    files.save_authority(rotated)
    if as_json:
        print_json({"version": rotated.version, "signs_at": rotated.signs_at})
        return
    typer.echo(f"The new authority signs from {_date(rotated.signs_at)} on.")


def _authority(home: Home, credentials: Credentials) -> Authority:
    found = HostFiles(TlsFolder(home.tls), credentials.cluster_id).authority()
    if found is None:
        raise TerminalError(
            f"{home.tls} has no authority: tokens and rotations are made on a host of control, "
            "where the certificates are not the operator's own"
        )
    return found.settle(SystemClock().now())


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
