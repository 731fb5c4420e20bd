"""Refusals of a request at submission; the caller may retry after both.

Exception
+-- QuotaExceededError   its tenant has used up what it may use (429)
+-- ServerFullError      the whole server's queue is full (503)
"""


class QuotaExceededError(Exception):
    """`tenant` has reached the `limit` of its `quota`; room is expected in `retry_after_s`."""

    def __init__(self, tenant: str, quota: str, limit: float, retry_after_s: float) -> None:
        super().__init__(
            f"tenant {tenant!r} has reached its quota of {limit:g} {quota}; "
            f"try again in {retry_after_s:.1f} s"
        )
        self.tenant = tenant
        self.quota = quota
        self.limit = limit
        self.retry_after_s = retry_after_s


class ServerFullError(Exception):
    """`limit` requests wait already; a place is expected in `retry_after_s`."""

    def __init__(self, limit: int, retry_after_s: float) -> None:
        super().__init__(f"{limit} requests wait already; try again in {retry_after_s:.1f} s")
        self.limit = limit
        self.retry_after_s = retry_after_s
