"""Waits for descriptors of any number: `select.select` refuses those from 1024 on."""

import math
import select


def readable(*descriptors: int, within_s: float | None) -> list[int]:
    """Those that can be read now, or are at their end; waits `within_s` for one, None: forever."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    limit_ms = None if within_s is None else math.ceil(within_s * 1000)
    return [descriptor for descriptor, _ in poll.poll(limit_ms)]
