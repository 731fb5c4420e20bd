"""Names of a running platform, for completion: quick, and none where it does not answer.

Imported by every command that takes a name, so that it imports no HTTP client, and none of AWS's.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import typer

from hostelry.base.errors import HostelryError
from hostelry.base.json import decode
from hostelry.cli.completion.words import KEPT_VARIABLE
from hostelry.cli.home_option import home_at, load_home
from hostelry.home.home import Credentials, Home
from hostelry.home.run_file import recorded_names

WITHIN_S = 1.0
MAX_JOBS, MAX_CALLS = 100, 50
MAX_ANSWER_BYTES = 16 * 1024 * 1024
Completer = Callable[[typer.Context, str], list[str]]
NamesOf = Callable[[Home], Iterable[str]]


def completer(names_of: NamesOf) -> Completer:
    """A typer completion of the names in the command's home."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        home = ctx.params.get("home")  # typer before 0.29 leaves it a text here
        try:
            names = names_of(home_at(None if home is None else Path(home)))
        except (HostelryError, OSError, msgspec.MsgspecError):
            return []
        return filter_names(names, incomplete, os.environ.get(KEPT_VARIABLE, ""))

    return complete


def filter_names(names: Iterable[str], incomplete: str, kept: str) -> list[str]:
    """The names that begin with `incomplete`, without the prefix that the shell `kept`. Pure."""
    begun = sorted({it for it in names if it.startswith(incomplete)})
    return [it.removeprefix(kept) for it in begun]


def _list_known(home: Home, *kinds: str) -> list[str]:
    """Control's names of these kinds."""
    config, credentials = load_home(home)
    found = _ask(config.control_url, "/internal/names", credentials)
    return [name for kind in kinds for name in found.get(kind, ())]


def _list_logged(home: Home) -> list[str]:
    return [
        *recorded_names(home),
        *_list_known(home, "endpoints", "components", "instances", "copies"),
    ]


def _jobs(home: Home) -> list[str]:
    config, credentials = load_home(home)
    found = _ask(config.jobs_url, f"/internal/jobs?limit={MAX_JOBS}", credentials)
    return [str(it["id"]) for kind in ("jobs", "batches") for it in found.get(kind, ())]


def _batches(home: Home) -> list[str]:
    config, credentials = load_home(home)
    found = _ask(config.jobs_url, f"/internal/jobs?limit={MAX_JOBS}", credentials)
    return [str(it["id"]) for it in found.get("batches", ())]


def _list_watched(home: Home) -> list[str]:
    return [*_list_known(home, "transform_jobs"), *_batches(home)]


def _list_traced(home: Home) -> list[str]:
    """Ids of calls, and endpoints whose calls can be listed."""
    config, credentials = load_home(home)
    path = f"/traces?order=slowest&limit={MAX_CALLS}"
    found = _ask(config.gateway_url, path, credentials)
    return [
        *(str(it["request_id"]) for it in found.get("calls", ())),
        *_list_known(home, "endpoints"),
    ]


def _ask(url: str, path: str, credentials: Credentials) -> Mapping[str, Any]:
    """The JSON object at a process of the platform. Raises OSError if it does not answer."""
    import http.client

    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=WITHIN_S)
    try:
        connection.request("GET", path, headers={"X-Hostelry-Key": credentials.internal_key})
        answer = connection.getresponse()
        body = answer.read(MAX_ANSWER_BYTES)
    except http.client.HTTPException as error:
        raise OSError(str(error)) from None
    finally:
        connection.close()
    return {} if answer.status != 200 else decode(body, dict[str, Any])


endpoints = completer(lambda home: _list_known(home, "endpoints"))
components = completer(lambda home: _list_known(home, "components"))
# What serves: endpoints, and components with those that are adapters.
served = completer(lambda home: _list_known(home, "endpoints", "components"))
restarted = completer(lambda home: _list_known(home, "copies", "components", "endpoints"))
instances = completer(lambda home: _list_known(home, "instances"))
versions = completer(lambda home: _list_known(home, "variants", "components"))
logged = completer(_list_logged)
jobs = completer(_jobs)
batches = completer(_batches)
watched = completer(_list_watched)
traced = completer(_list_traced)
