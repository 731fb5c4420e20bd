"""States of an adapter between storage and the page pool, shared by the pool and the scheduler."""

from enum import Enum


class AdapterState(Enum):
    """Where an adapter's weights are, from far to near.

    The page pool knows `ABSENT`, `LOADING` and `RESIDENT`; the scheduler also knows what is in host
    memory or on its way there. Which disk or remote place an absent adapter comes from is the
    loader's `StorageTier`.
    """

    ABSENT = "absent"  # neither in host memory nor in the pool
    FETCHING = "fetching"  # named in a plan's fetches, not reported yet
    IN_HOST = "in host memory"
    LOADING = "loading"  # its pages are reserved, the copy into them is in progress
    RESIDENT = "resident"  # its weights are in its pages
