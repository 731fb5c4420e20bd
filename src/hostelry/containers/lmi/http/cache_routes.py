"""GET /cache: the places of adapters, the use of the page pool, and the tiers below the pool.

A request within a second after another gets the same answer.
"""

import asyncio
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.clock import monotonic_s
from hostelry.containers.lmi.engine.backend import CachedAdapterView, CacheView
from hostelry.containers.lmi.http.adapter_registry import AdapterRecord
from hostelry.containers.lmi.http.adapter_routes import query_integer
from hostelry.containers.lmi.http.bodies import answering, json_response
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.refusal import Surface

MAX_CELLS = 4096
DEFAULT_ADAPTERS = 200
MAX_ADAPTERS = 1000
FRESH_S = 1.0


def page_map(codes: bytes, max_cells: int = MAX_CELLS) -> dict[str, Any]:
    """`runs` of [code, cells], each cell of `pages_per_cell` pages with their most frequent code.

    `codes` are two bytes per page, little-endian. At most `max_cells` cells result.
    """
    pages = array("H")
    pages.frombytes(codes)
    if sys.byteorder == "big":
        pages.byteswap()
    width = max(1, -(-len(pages) // max_cells))
    cells = pages if width == 1 else _cells(pages, width)
    runs = [[code, sum(1 for _ in run)] for code, run in groupby(cells)]
    return {"pages_per_cell": width, "runs": runs}


def _cells(pages: "array[int]", width: int) -> list[int]:
    slices = (pages[start : start + width] for start in range(0, len(pages), width))
    return [Counter(it).most_common(1)[0][0] for it in slices]


class CacheRoute:
    """The handler. For each `limit` it asks the engine at most once in FRESH_S."""

    def __init__(self, server: LmiServer, now_s: Callable[[], float] = monotonic_s) -> None:
        self._server = server
        self._now_s = now_s
        self._turn = asyncio.Lock()
        self._last: tuple[float, int, Response] | None = None

    async def answer(self, request: Request) -> Response:
        """GET /cache?limit=N."""
        limit = query_integer(request, "limit", DEFAULT_ADAPTERS, 0, MAX_ADAPTERS)
        model = self._server.get_model()
        async with self._turn:
            if self._last is not None:
                asked_at_s, for_limit, answer = self._last
                if for_limit == limit and self._now_s() - asked_at_s < FRESH_S:
                    return answer
            view = await model.backend.cache(limit)
            chosen = {"engine": model.engine.value, "why_engine": model.why_engine}
            answer = json_response(chosen | cache_document(view, model.registry.records))
            self._last = (self._now_s(), limit, answer)
            return answer


def cache_paths(server: LmiServer) -> list[Route]:
    """The route."""
    answer = answering(server, Surface.FRONT_END, CacheRoute(server).answer)
    return [Route("/cache", answer, methods=["GET"])]


def cache_document(view: CacheView, records: Mapping[str, AdapterRecord]) -> dict[str, Any]:
    """The answer: `adapters` with their names as keys, sums over all adapters, tiers, the pool."""
    stats = view.stats
    return {
        "kernels": stats.kernels,
        "adapters": {it.name: _adapter(it, records.get(it.name)) for it in view.adapters},
        "registered": len(records),
        "loaded": view.num_adapters,
        "requests": view.requests,
        "tokens": view.prompt_tokens + view.generated_tokens,
        "all_tokens": stats.prompt_tokens + stats.generated_tokens,
        "hits": view.hits,
        "pool": {
            "pages": stats.total_pages,
            "bytes": stats.pool_bytes,
            "sequence_pages": view.sequence_pages,
            "idle_prefix_pages": view.idle_prefix_pages,
            "adapter_pages": stats.adapter_pages,
            "pinned_pages": stats.pinned_pages,
            "cached_pages": stats.cached_pages,
            "adapters": stats.adapters_in_pool,
            "loads": view.pool_loads,
            "evictions": view.pool_evictions,
            "map": page_map(view.page_codes),
        },
        "prefix": {
            "hits": view.prefix_hits,
            "misses": view.prefix_misses,
            "evicted_pages": view.evicted_prefix_pages,
            "tokens": stats.cached_tokens,
        },
        "host": {
            "adapters": stats.adapters_in_host,
            "bytes": stats.host_bytes,
            "max_bytes": stats.max_host_bytes,
            "evictions": view.host_evictions,
        },
        "disk": {
            "bytes": stats.disk_bytes,
            "max_bytes": stats.max_disk_bytes,
            "evictions": view.disk_evictions,
        },
        "loads": {
            "waiting": stats.adapter_loads_waiting,
            "running": stats.adapter_loads_running,
            "failed": stats.adapter_loads_failed,
        },
        "running": stats.running_requests,
        "waiting": stats.waiting_requests,
    }


def _adapter(adapter: CachedAdapterView, record: AdapterRecord | None) -> dict[str, Any]:
    shown = asdict(adapter.view)
    del shown["warnings"]
    shown["version"] = adapter.view.version[:12]
    return {
        "alias": adapter.name if record is None else record.alias,
        "pinned": record is not None and record.pin,
        "code": adapter.code,
        **shown,
    }
