"""Reader of a request's body, within a limit."""

from starlette.requests import ClientDisconnect, Request

from hostelry.containers.lmi.refusal import Cause, Refusal, bad_request


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """The whole body; raises Refusal as soon as it is known to exceed `limit_bytes`."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit_bytes:
        raise too_large(int(declared), limit_bytes)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit_bytes:
                raise too_large(len(body), limit_bytes)
    except ClientDisconnect as error:
        raise bad_request("the client closed the connection before the end of its body") from error
    return bytes(body)


def too_large(size_bytes: int, limit_bytes: int) -> Refusal:
    """The refusal of a body that exceeds the configured limit."""
    return Refusal(
        Cause.TOO_LARGE,
        f"the body has {size_bytes} bytes or more; the limit is {limit_bytes} "
        "(SAGEMAKER_MAX_PAYLOAD_IN_MB, max_request_size)",
    )
