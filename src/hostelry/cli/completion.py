"""Completion in shells: the scripts, the names on a running platform, and bash's split words.

Every command with a NAME argument imports this module, so it imports neither an HTTP client nor
botocore. If the platform does not answer quickly, no name is completed.
"""

import os
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined] # not in __all__

from hostelry.base.errors import HostelryError
from hostelry.base.json import decode
from hostelry.cli.home_option import home_at, load_home
from hostelry.home.home import Credentials, Home
from hostelry.home.run_file import recorded_names

COMPLETE_VARIABLE = "_HOSTELRY_COMPLETE"
# bash keeps the last word's part up to its last colon, so completions leave out this part.
KEPT_VARIABLE = "_HOSTELRY_COMPLETE_KEPT"
WITHIN_S = 1.0
MAX_JOBS, MAX_CALLS = 100, 50
MAX_ANSWER_BYTES = 16 * 1024 * 1024
Completer = Callable[[typer.Context, str], list[str]]
NamesOf = Callable[[Home], Iterable[str]]


def join_words(environment: MutableMapping[str, str]) -> None:
    """Join the words in COMP_WORDS that bash has split at colons, and set COMP_CWORD.

    bash splits `hostelry chat base:es` into five words. KEPT_VARIABLE gets the part that it keeps.
    Source: Bash Reference Manual, COMP_WORDBREAKS.
    """
    words = environment.get("COMP_WORDS", "").split("\n")
    place = environment.get("COMP_CWORD", "")
    if not place.isdecimal() or int(place) >= len(words):
        return
    joined: list[str] = []
    at, goes_on = 0, False
    for number, word in enumerate(words):
        is_colon = word != "" and not word.strip(":") and number > 0
        if joined and (is_colon or goes_on):
            joined[-1] += word
        else:
            joined.append(word)
        goes_on = is_colon
        if number == int(place):
            at = len(joined) - 1
            break
    kept, colon, _ = joined[at].rpartition(":")
    environment["COMP_WORDS"] = "\n".join(joined)
    environment["COMP_CWORD"] = str(at)
    environment[KEPT_VARIABLE] = kept + colon


def completer(names_of: NamesOf) -> Completer:
    """Build a typer completion from the names that `names_of` returns for the command's home."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        home = ctx.params.get("home")  # typer before 0.29 leaves a text here
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
    """The names of resources of these kinds, as control lists them."""
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
    """Ids of recent calls, and endpoints whose calls `hostelry trace` can list."""
    config, credentials = load_home(home)
    path = f"/traces?order=slowest&limit={MAX_CALLS}"
    found = _ask(config.gateway_url, path, credentials)
    return [
        *(str(it["request_id"]) for it in found.get("calls", ())),
        *_list_known(home, "endpoints"),
    ]


def _accounts(home: Home) -> list[Mapping[str, Any]]:
    config, credentials = load_home(home)
    return list(_ask(config.control_url, "/internal/accounts", credentials).get("accounts", ()))


def _list_users(home: Home) -> list[str]:
    return [str(user["name"]) for one in _accounts(home) for user in one["users"]]


def _list_keys(home: Home) -> list[str]:
    owners = [owner for one in _accounts(home) for owner in (one, *one["users"])]
    return [str(key["id"]) for owner in owners for key in owner.get("keys", ())]


def _ask(url: str, path: str, credentials: Credentials) -> Mapping[str, Any]:
    """The JSON answer of a platform process. Raises OSError if the process does not answer."""
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
quotas = completer(lambda home: _list_known(home, "quotas"))
components = completer(lambda home: _list_known(home, "components"))
# Names that can be called: endpoints, and components including adapters.
served = completer(lambda home: _list_known(home, "endpoints", "components"))
restarted = completer(lambda home: _list_known(home, "copies", "components", "endpoints"))
instances = completer(lambda home: _list_known(home, "instances"))
versions = completer(lambda home: _list_known(home, "variants", "components"))
logged = completer(_list_logged)
jobs = completer(_jobs)
batches = completer(_batches)
watched = completer(_list_watched)
traced = completer(_list_traced)
accounts = completer(lambda home: [str(it["name"] or it["id"]) for it in _accounts(home)])
users = completer(_list_users)
keys = completer(_list_keys)


class ShellName(StrEnum):
    """Shells with a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[
        ShellName, typer.Argument(help="Shell: bash, zsh or fish.", show_default=False)
    ],
) -> None:
    """Print the shell script that completes commands, options, and names on the running platform.

    `hostelry --install-completion` writes the script into the startup file of your shell.

    Example: source <(hostelry completion bash)

    Example: hostelry completion fish > ~/.config/fish/completions/hostelry.fish
    """
    typer.echo(
        get_completion_script(
            prog_name="hostelry", complete_var=COMPLETE_VARIABLE, shell=shell.value
        )
    )
