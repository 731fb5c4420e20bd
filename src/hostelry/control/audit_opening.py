"""The audit trail of a platform: in files of its home, or in its database on PostgreSQL."""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager

import msgspec

from hostelry.audit.chain import ChainHead, TrailAnchor, derive_key
from hostelry.audit.file_writer import TrailFiles
from hostelry.audit.folder import HeadFile, TrailFolder
from hostelry.audit.former import take_former_files, take_former_rows
from hostelry.audit.rows import RowReader, TrailMarks, TrailRows
from hostelry.audit.trail import AuditTrail, TrailLimits, TrailReader, TrailWriter
from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.home.platform_store import platform_database
from hostelry.store.database import Database

LOG = logging.getLogger(__name__)


def open_platform_trail(
    home: Home, config: UpConfig, credentials: Credentials, database: Database, clock: Clock
) -> AuditTrail:
    """Open and start the trail. `database` is the store's. Acts of earlier versions are taken in.

    Raises TerminalError if another process writes the trail.
    """
    key = derive_key(credentials.internal_key)
    writer: TrailWriter
    heads = None
    if config.store_url is not None:
        writer, heads = TrailRows(database, key), HeadFile(home.audit_head, key)
    else:
        writer = TrailFiles(home.audit, key)
    owner = (credentials.account_id, credentials.region)
    limits = TrailLimits(days=config.audit_days, max_bytes=config.audit_bytes)
    trail = AuditTrail(writer, TrailMarks(database, key), key, owner, clock, limits, heads)
    trail.start()
    try:
        take_former_files(trail, home.former_audit)
        if config.store_url is not None:
            take_former_rows(trail, database)
    except (OSError, HostelryError) as error:
        LOG.warning("acts of an earlier version are not in the audit log yet: %s", error)
    return trail


class StoredTrail(msgspec.Struct, frozen=True, kw_only=True):
    """A platform's trail, for commands that read it. `heads` are the heads that are noted."""

    reader: TrailReader
    key: bytes
    anchor: TrailAnchor | None
    heads: tuple[ChainHead, ...]


@contextmanager
def read_stored_trail(
    home: Home, config: UpConfig, credentials: Credentials
) -> Iterator[StoredTrail]:
    """Open the trail to read it, also while control runs.

    Raises StoreRefused and StoreUnavailable if the store cannot be read.
    """
    key = derive_key(credentials.internal_key)
    with closing(platform_database(home, config)) as database:
        marks = TrailMarks(database, key)
        rows = RowReader(database) if config.store_url is not None else None
        noted = [marks.read_head()]
        if rows is not None:
            noted.append(HeadFile(home.audit_head, key).read_head())
        yield StoredTrail(
            reader=rows or TrailFolder(home.audit),
            key=key,
            anchor=marks.read_anchor(),
            heads=tuple(it for it in noted if it is not None),
        )
