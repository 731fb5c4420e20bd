"""The database of a platform: the home's own SQLite file, or PostgreSQL by ``--store``."""

import socket
from pathlib import Path

from hostelry import __version__
from hostelry.base.clock import SystemClock
from hostelry.base.errors import HostelryError, TerminalError
from hostelry.base.peers import skew_refusal
from hostelry.base.root_key import RootKey
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.store.claim import StoreClaim, claim
from hostelry.store.database import Database, open_database
from hostelry.store.leaders import running_controls
from hostelry.store.protocol import Store, StoreUnavailable
from hostelry.store.sql import SqlStore


def platform_database(home: Home, config: UpConfig) -> Database:
    """The database for everything durable of the control plane. A process opens it once.

    Raises StoreRefused for a URL that cannot be used, or if PostgreSQL's driver is missing.
    """
    return open_database(_place(home, config))


def open_claimed_store(
    database: Database, home: Home, config: UpConfig, credentials: Credentials
) -> SqlStore:
    """The platform's store, up to date and claimed by this cluster.

    Closes the database and raises StoreRefused if it cannot be used, StoreUnavailable if it cannot
    be used now, for example while a control of a version too far from this version runs on it.
    """
    if config.store_url is None:
        return SqlStore(database)
    try:
        refuse_skew(database)
        store = SqlStore(database)
        claim(database, build_claim(home, credentials))
    except HostelryError:
        database.close()
        raise
    return store


def refuse_skew(database: Database) -> None:
    """Raise StoreUnavailable while a control runs whose version is too far from this version."""
    for other in running_controls(database):
        if why := skew_refusal("this control", __version__, f"control {other.id}", other.version):
            raise StoreUnavailable(why)


def check_store(
    home: Home, config: UpConfig, before: UpConfig | None, credentials: Credentials
) -> None:
    """Raise where the store of a start cannot be used, before anything is started.

    Raises StoreRefused, StoreUnavailable, or TerminalError where the store is another one than that
    of the last start and lacks its records: the platform would forget its endpoints. The home has
    the root key afterwards, where several controls may need the same.
    """
    store = open_claimed_store(platform_database(home, config), home, config, credentials)
    try:
        revision = store.revision()
        if config.store_url is not None:
            make_root_key(home, store)
    finally:
        store.close()
    if revision == 0 and (left := _find_left_store(home, config, before)):
        raise TerminalError(
            f"the store {_get_place(home, config)} is empty, and {left} has this home's records: "
            "copy them first with `hostelry store copy`, or start with another --home"
        )


def make_root_key(home: Home, store: Store) -> None:
    """Make the home's root key before another control joins. A lost key is not replaced."""
    if not home.root_key.exists() and not store.list("kms_key"):
        RootKey(home.root_key).read(may_make=True)


def build_claim(home: Home, credentials: Credentials) -> StoreClaim:
    """What this home claims a database with."""
    name = f"{socket.gethostname()}:{home.root}"
    return StoreClaim(cluster_id=credentials.cluster_id, home=name, claimed_at=SystemClock().now())


def _find_left_store(home: Home, config: UpConfig, before: UpConfig | None) -> str | None:
    """The store of the last start, if it is another one and has records."""
    place = home.state if before is None or before.store_url is None else before.store_url
    if place == _place(home, config) or (isinstance(place, Path) and not place.exists()):
        return None
    try:
        store = SqlStore(open_database(place))
    except HostelryError:  # it is gone, or cannot be read: nothing is known of it
        return None
    try:
        return open_database(place).place if store.revision() else None
    finally:
        store.close()


def _place(home: Home, config: UpConfig) -> Path | str:
    return config.store_url or home.state


def _get_place(home: Home, config: UpConfig) -> str:
    return open_database(_place(home, config)).place
