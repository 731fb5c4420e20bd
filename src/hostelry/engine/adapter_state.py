"""States of an adapter between storage and the page pool, shared by the pool and the scheduler."""

from enum import Enum


class AdapterState(Enum):
    """The position of an adapter's weights, from far to near.

    The page pool knows `ABSENT`, `LOADING` and `RESIDENT`. The scheduler also tracks transfers into
    host memory. The disk or remote source of an absent adapter is the loader's `StorageTier`.
    """

    ABSENT = "absent"  # neither in host memory nor in the pool
    FETCHING = "fetching"  # named in a plan's fetches, not reported yet
    IN_HOST = "in host memory"
    LOADING = "loading"  # its pages are reserved, the copy into them is in progress
    RESIDENT = "resident"  # its weights are in its pages
