"""The operator's secrets by purpose, and secrets on this process's own command line."""

import ctypes
import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path

# The operator's secrets by purpose, and the variables without them. Pure.
#
#     purpose   variables                                         given to
#     HUB       the hub's token: HF_TOKEN and the like            the agent, which downloads, and an
#                                                                 LLM server without trusted code
#     PROXY     user and password in *_PROXY, HF_ENDPOINT         the same
#     index     user and password in PIP_* and UV_* indexes       the agent, which installs packages
#     others    AWS keys, the database's URL, the platform's own  no model server
#
# A program that may run an author's code gets no secrets. The agent downloads its files.


class SecretPurpose(Enum):
    """A purpose for which a model server may be given a secret of the operator's."""

    HUB = "hub"
    PROXY = "proxy"


HUB_VARIABLES = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"})
# The hub's client reads the token of `hf auth login` unless this names another file.
NO_TOKEN_PATH = os.devnull
INDEX_VARIABLES = frozenset(
    f"{tool}_{name}"
    for tool in ("PIP", "UV")
    for name in ("INDEX", "DEFAULT_INDEX", "INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS")
)
INDEX_LOGIN = ("UV_INDEX_", ("_USERNAME", "_PASSWORD"))
HOST_END = re.compile(r"[/\s,'\"]")
LOGIN = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.DOTALL)


def shown_variables(
    operator: Mapping[str, str], secrets: Collection[SecretPurpose]
) -> dict[str, str]:
    """The operator's variables for a program that may see `secrets` and no others."""
    shown = dict(operator)
    if SecretPurpose.HUB not in secrets:
        shown = {name: it for name, it in shown.items() if name not in HUB_VARIABLES}
        shown["HF_TOKEN_PATH"] = NO_TOKEN_PATH
    begins, ends = INDEX_LOGIN
    for name in [it for it in shown if it.startswith(begins) and it.endswith(ends)]:
        del shown[name]
    shown |= {name: without_logins(it) for name, it in shown.items() if name in INDEX_VARIABLES}
    if SecretPurpose.PROXY not in secrets:
        shown |= {name: without_login(it) for name, it in shown.items() if may_have_login(name)}
    return shown


def may_have_login(name: str) -> bool:
    """Whether the variable is an address that may have a user and a password in it."""
    return name == "HF_ENDPOINT" or name.lower().endswith("_proxy")


def without_login(address: str) -> str:
    """The address without user and password."""
    return LOGIN.sub(r"\1", address)


def without_logins(text: str) -> str:
    """The text, such as a line that a tool prints, whose addresses have no user and password."""
    first, *others = text.split("://")
    for number, other in enumerate(others):
        host = HOST_END.split(other, maxsplit=1)[0]
        others[number] = other[host.rfind("@") + 1 :]
    return "://".join([first, *others])


ARG_START, ARG_END = 45, 46  # fields of /proc/PID/stat after the name, which proc(5) counts from 3


def hide_argument(text: str) -> None:
    """Overwrite `text` on the command line of this process with x, where the kernel allows it."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[ARG_START]), int(fields[ARG_END])
        wanted = text.encode()
        found = ctypes.string_at(start, end - start).find(wanted) if start else -1
        if wanted and found >= 0:
            ctypes.memset(start + found, ord("x"), len(wanted))
