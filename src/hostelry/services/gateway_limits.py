"""The limits of one gateway worker, from the platform's configuration."""

from hostelry.dataplane.http.reader import HttpLimits
from hostelry.gateway.handlers.openai_batches import UPLOADS
from hostelry.gateway.handlers.runtime import InvocationLimits
from hostelry.gateway.mirror import MAX_IN_FLIGHT
from hostelry.gateway.queueing.request_queues import QueueLimits
from hostelry.home.home import UpConfig

RESERVED_FILES = 128 + MAX_IN_FLIGHT  # descriptors for a worker itself, and for shadows


def invocation_limits(config: UpConfig) -> InvocationLimits:
    """Limits of one invocation."""
    return InvocationLimits(
        max_answer_bytes=config.max_body_bytes,
        invoke_timeout_s=config.invoke_timeout_s,
        stream_timeout_s=config.stream_timeout_s,
    )


def http_limits(config: UpConfig, max_files: int) -> HttpLimits:
    """The limits of this worker's clients. The worker may have `max_files` descriptors open.

    The workers share the memory for requests of unverified senders.
    """
    unverified_bytes = config.unproven_bytes // max(config.gateway_workers, 1)
    # Each client connection may need a connection to a copy, too.
    room = max((max_files - RESERVED_FILES) // 2, 1)
    return HttpLimits(
        max_body_bytes=config.max_body_bytes,
        max_connections=min(config.max_connections, room),
        max_unverified_bytes=max(unverified_bytes, 4 * config.max_body_bytes),
        streamed_bodies=UPLOADS,
    )


def queue_limits(config: UpConfig) -> QueueLimits:
    """This worker's share of the requests that the gateway may hold."""
    limits = QueueLimits(
        max_requests=config.hold_requests,
        max_requests_each=config.hold_requests_each,
        max_bytes=config.hold_bytes,
        limit_s=config.hold_limit_s,
    )
    return limits.share(config.gateway_workers)
