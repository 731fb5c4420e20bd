"""Database of the jobs process: the home's own file, or one that several hosts share."""

import contextlib
import os
import secrets

from hostelry.base.errors import HostelryError
from hostelry.base.files import write_whole
from hostelry.home.home import Home, UpConfig
from hostelry.jobs.queue.durable_queue import DurableQueue
from hostelry.store.database import open_database


def open_queue(home: Home, config: UpConfig) -> DurableQueue:
    """Open the queue of asynchronous requests. Raises StoreRefused."""
    database = open_database(config.store_url or home.jobs)
    try:
        return DurableQueue(database, is_shared=config.store_url is not None)
    except HostelryError:
        database.close()
        raise


def get_host_name(home: Home, config: UpConfig) -> str | None:
    """This home's name among the homes that share a database. None if it is not shared.

    The name is the same at each start.
    """
    if config.store_url is None or config.host_id:
        return config.host_id or None
    if not home.host.exists():
        scratch = home.host.with_name(f"host.{os.getpid()}")
        write_whole(scratch, secrets.token_hex(8).encode())
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(scratch, home.host)
        scratch.unlink()
    return home.host.read_text()
