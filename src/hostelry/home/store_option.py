"""The ``--store`` of a platform: the home's own SQLite file, or a database of PostgreSQL."""

from urllib.parse import urlsplit

from hostelry.base.errors import UsageError
from hostelry.home.home import Home, UpConfig
from hostelry.store.protocol import SCHEMES

VARIABLE = "HOSTELRY_STORE"
OWN_FILE = "sqlite"  # back to the home's own file


def choose_store_url(option: str | None, before: UpConfig | None) -> str | None:
    """The URL that ``--store`` chooses, by default the URL of the home's last start.

    Raises TerminalError, which repeats nothing of the value, if it is neither a URL nor sqlite.
    """
    if option is None:
        return before.store_url if before else None
    if option == OWN_FILE:
        return None
    if not option.startswith(SCHEMES):
        raise UsageError(
            f"--store: expected {SCHEMES[0]}USER@HOST/DATABASE, or {OWN_FILE} for the home's file"
        )
    return option


def secret_in(url: str) -> bool:
    """Whether a URL may have a password in it."""
    user = url.partition("://")[2].rpartition("@")[0]
    return ":" in user or "password" in url.partition("?")[2]


def place_shown(home: Home, config: UpConfig) -> str | None:
    """The place of the records, without user and password. None on a host without control."""
    if config.is_gateway_host:
        return None
    if config.store_url is None:
        return str(home.state)
    parts = urlsplit(config.store_url)
    is_plain = "@" not in parts.path  # else an unquoted password may be anywhere
    return f"{SCHEMES[0]}{parts.netloc.rpartition('@')[2]}{parts.path}" if is_plain else SCHEMES[0]


def involves_server(config: UpConfig, before: UpConfig | None) -> bool:
    """Whether PostgreSQL has the store of this start, or had the store of the last start."""
    return config.store_url is not None or (before is not None and before.store_url is not None)
