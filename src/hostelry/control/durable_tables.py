"""Everything durable of the control plane that ``--store`` keeps in one database of PostgreSQL.

A home without ``--store`` has each in a file of its own. `hostelry store copy` copies all of it: a
file that moves to the platform's database gets a line here. What a home has in files that are no
database is in `file_histories`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import MetaData

from hostelry.home.home import Home
from hostelry.jobs.batches.tables import METADATA as BATCHES
from hostelry.jobs.transform.object_rows import OBJECTS
from hostelry.messaging.tables import METADATA as MESSAGES
from hostelry.store.tables import METADATA as RECORDS


@dataclass(frozen=True, slots=True)
class DurableTables:
    """Tables, and the file that has them in a home."""

    metadata: MetaData
    file_of: Callable[[Home], Path]


# The store's own come first: a copy commits them last, and its target is in use by then only.
DURABLE = (
    DurableTables(RECORDS, lambda home: home.state),
    DurableTables(MESSAGES, lambda home: home.messages),
    DurableTables(OBJECTS.metadata, lambda home: home.jobs),  # the queue's, too
    DurableTables(BATCHES, lambda home: home.jobs),
)
