"""A host joins a cluster: it gets a certificate and a home's files for a token.

1. It asks, unverified, for the authorities' certificates, and uses the one whose fingerprint
   the token has.
2. It asks again, now verified by that one alone, and only then shows the token.
3. It writes the files next to the home and renames them into it, config.json last: a home that has
   it is whole. A retry shows the same key, so that the same token is good again.

A host that has joined may join again, with a new token (`cluster.joined_home`): after its
certificate has ended, for example.
"""

import base64
import contextlib
import http.client
import os
import re
import shutil
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from hostelry import __version__
from hostelry.base.certificates import get_cluster, new_key, read_facts, signing_request, split
from hostelry.base.clock import SystemClock
from hostelry.base.errors import RetryableError, TerminalError, UsageError
from hostelry.base.files import sync_folder, write_whole
from hostelry.base.json import decode
from hostelry.base.peers import PeerName, PeerRole
from hostelry.base.tls import JOIN, TlsFolder, get_peer
from hostelry.cluster.further_control import machine
from hostelry.cluster.host_files import safe_name
from hostelry.cluster.http_front import AUTHORITY_PATH, JOIN_PATH
from hostelry.cluster.join_routes import HOST_NAME, JoinedFiles, JoinRequest
from hostelry.cluster.join_token import JoinToken, get_digest
from hostelry.cluster.joined_home import (
    HomeBefore,
    config_after,
    joining_key,
    read_home,
    token_file,
)
from hostelry.home.home import Home

CALL_S = 20.0
MAX_ANSWER_BYTES = 8 * 1024 * 1024
WRITTEN_LAST = "config.json"


def join(url: str, token: str, home: Home, role: PeerRole, name: str | None = None) -> PeerName:
    """Make `home` a joined home of the cluster at `url`, and return this host's name there.

    `name` is by default the name under which it has joined before, or the machine's own. Raises
    TerminalError with the fault, RetryableError if the cluster does not answer.
    """
    host, port = _server(url)
    wanted = JoinToken.parse(token)
    before = read_home(home, SystemClock().now())
    before.check(role)
    own_name = _host_name(name, before)
    home.make()
    folder = TlsFolder(home.tls)
    folder.root.mkdir(mode=0o700, exist_ok=True)
    # The same at each attempt: the token is good again for this very request.
    kept = joining_key(folder)
    if not kept.exists():
        key = new_key()
        write_whole(kept, key + signing_request(key))
    try:
        joined, key = _ask(host, port, (wanted, role, own_name), before, kept.read_bytes())
    except TerminalError:
        if before.is_valid and not before.is_cut_off:  # it stays as it was
            kept.unlink()
        raise
    _write(home, joined, key, url, get_digest(wanted.secret))
    kept.unlink()
    return PeerName(joined.cluster, role, own_name)


def must_join(token: str, home: Home, role: PeerRole) -> bool:
    """Whether the host uses the token. Raises TerminalError if it cannot be a host of `role`."""
    return read_home(home, SystemClock().now()).uses(JoinToken.parse(token), role)


def _ask(
    host: str,
    port: int,
    wanted: tuple[JoinToken, PeerRole, str],
    before: HomeBefore,
    pem: bytes,
) -> tuple[JoinedFiles, bytes]:
    """Control's answer, and the key that it is for."""
    token, role, name = wanted
    authority = _authority(host, port, token)
    before.check_cluster(get_cluster(authority))
    end_of_key = pem.index(b"-----BEGIN CERTIFICATE REQUEST")
    asked = JoinRequest(
        token=str(token),
        role=role.value,
        name=name,
        request=pem[end_of_key:].decode(),
        version=__version__,
        host_id=before.host_id,
        machine=machine() if role is PeerRole.CONTROL else "",
    )
    body = _call(host, port, authority, "POST", JOIN_PATH, msgspec.json.encode(asked))
    try:
        return decode(body, JoinedFiles), pem[:end_of_key]
    except msgspec.DecodeError as error:
        raise RetryableError(f"{host}:{port} gave no joined home: {error}") from None


def _host_name(given: str | None, before: HomeBefore) -> str:
    if given is not None and not re.match(HOST_NAME, given):
        raise UsageError(
            f"--host-name {given}: expected 1 to 63 of A-Z a-z 0-9 _ . -, a letter or digit first"
        )
    if given is None and before.name is not None:
        return before.name.name
    return given or safe_name(socket.gethostname())


def _server(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    with contextlib.suppress(ValueError):
        if parts.scheme == "https" and parts.hostname and parts.port:
            return parts.hostname, parts.port
    raise UsageError(
        f"--join {url}: expected https://HOST:PORT of a host's --cluster-host and --cluster-port"
    )


def _authority(host: str, port: int, token: JoinToken) -> bytes:
    """The certificate of the authority that the token names, from a server not yet verified."""
    try:
        shown = split(_call(host, port, None, "GET", AUTHORITY_PATH, b""))
    except ValueError:
        raise TerminalError(f"{host}:{port} is no host of a cluster") from None
    for certificate in shown:
        if read_facts(certificate).fingerprint == token.fingerprint:
            return certificate
    raise TerminalError(
        f"{host}:{port} is not of the cluster that printed the token: its authority has another "
        "fingerprint. Nothing was sent to it"
    )


def _call(
    host: str, port: int, authority: bytes | None, method: str, path: str, body: bytes
) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if authority is not None:
        context.load_verify_locations(cadata=authority.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    connection = http.client.HTTPConnection(host, port, timeout=CALL_S)
    try:
        with contextlib.closing(connection):
            connection.connect()
            connection.sock = secured = context.wrap_socket(connection.sock, server_hostname=JOIN)
            if authority is not None and get_peer(secured).role is not PeerRole.CONTROL:
                raise TerminalError(f"{host}:{port} is no host of control")
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read(MAX_ANSWER_BYTES)
            if answer.status != 200:
                raise _refusal(f"{host}:{port}", answer.status, content)
            return content
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise RetryableError(f"{host}:{port} does not let this host join: {error}") from error


def _refusal(server: str, status: int, content: bytes) -> Exception:
    try:
        reason = str(decode(content, dict[str, Any]).get("reason"))
    except msgspec.DecodeError:
        reason = content[:200].decode("utf-8", "replace")
    kind = RetryableError if status in (429, 503) else TerminalError
    return kind(f"{server} does not let this host join: {reason}")


def _write(home: Home, joined: JoinedFiles, key: bytes, url: str, token_digest: str) -> None:
    """Write the joined home's files. config.json, the last, completes it."""
    scratch = home.root / ".joining"
    shutil.rmtree(scratch, ignore_errors=True)
    files = {name: base64.b64decode(data) for name, data in joined.files.items()}
    files["tls/identity.pem"] = key + joined.certificate.encode()
    files["tls/ca.pem"] = joined.trusted.encode()
    files[token_file(home)] = token_digest.encode()
    if WRITTEN_LAST not in files or any(_leads_out(it) for it in files):
        raise RetryableError(f"{url} gave no joined home: {', '.join(files)}")
    files[WRITTEN_LAST] = config_after(home, files[WRITTEN_LAST])
    if joined.instances:
        _share(home.instances, Path(joined.instances))
    for name, data in files.items():
        path = scratch / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, data)
    for name in sorted(files, key=lambda it: it == WRITTEN_LAST):
        (home.root / name).parent.mkdir(mode=0o700, exist_ok=True)
        (scratch / name).replace(home.root / name)
        sync_folder((home.root / name).parent)
    shutil.rmtree(scratch, ignore_errors=True)


def _share(own: Path, instances: Path) -> None:
    """Have the first host's folder of instances, on the same machine, as one's own."""
    if not os.access(instances, os.R_OK | os.W_OK | os.X_OK):
        raise TerminalError(
            f"the first host runs on this machine, and its instances in {instances} are not this "
            "user's: run both hosts as one user"
        )
    try:
        own.unlink() if own.is_symlink() else own.rmdir()
        own.symlink_to(instances)
    except OSError as error:
        raise TerminalError(f"{own} cannot be a link to {instances}: {error.strerror}") from None


def _leads_out(name: str) -> bool:
    path = Path(name)
    return path.is_absolute() or ".." in path.parts or len(path.parts) > 2
