"""Look-up of one call: its trace, and what its copies printed at that moment."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from hostelry.console.platform import PlatformError, PlatformPort, answer_to
from hostelry.console.views import call


async def look_at_call(port: PlatformPort, params: Mapping[str, str], now: float) -> dict[str, Any]:
    """The call of that `id` with its logs; `missing` with the reason, where none is kept."""
    call_id = params.get("id", "")
    try:
        answer = await port.ask("gateway", f"/traces/{quote(call_id, safe='')}")
    except PlatformError as error:
        return {"id": call_id, "missing": str(error)}
    if "call" not in answer:
        return {"id": call_id, "missing": "Give the id of a request."}
    found_call = answer["call"]
    queries = call.log_queries(found_call)
    asked = (answer_to(port, it) for it in queries)
    state, *found = await asyncio.gather(
        port.ask("control", "/internal/state"), *asked, return_exceptions=True
    )
    pages = [it for it in found if not isinstance(it, BaseException)]
    instances = {} if isinstance(state, BaseException) else call.instances_of(state)
    logs = call.log_streams(found_call, instances, pages)
    return call.document(found_call, logs, answer.get("silent", ()))
