"""Adapters and cache: rows over copies, owners of pages, and adapters that no copy has."""

from typing import Any

from tests.cases import case, cases

from hostelry.console.platform import ProcessQuery
from hostelry.console.views.adapters import document, sources

Json = dict[str, Any]


def adapter(tier: str, requests: int = 0, code: int | None = None, **changes: Any) -> Json:
    shown = {
        "alias": "fr", "pinned": False, "code": code, "version": "abc", "tier": tier, "rank": 8,
        "num_bytes": 100, "num_pages": 2, "requests": requests, "prompt_tokens": 3 * requests,
        "generated_tokens": requests, "hits": {tier: requests} if requests else {},
        "loads": {}, "failed_loads": 0, "uploads": 1, "host_evictions": 0, "in_flight": 0,
    }  # fmt: skip
    return {**shown, **changes}


def cache(**adapters: Json) -> Json:
    requests = sum(it["requests"] for it in adapters.values())
    pool = {
        "pages": 10, "bytes": 1000, "sequence_pages": 3, "idle_prefix_pages": 1,
        "adapter_pages": 2, "pinned_pages": 0, "cached_pages": 1, "adapters": 1, "loads": 5,
        "evictions": 4, "map": {"pages_per_cell": 1, "runs": [[3, 2], [0, 8]]},
    }  # fmt: skip
    return {
        "kernels": "native",
        "adapters": {f"{name}-id": {**it, "alias": name} for name, it in adapters.items()},
        "registered": 3,
        "loaded": 3,
        "requests": requests,
        "tokens": 4 * requests,
        "all_tokens": 100,
        "hits": {"pool": requests},
        "pool": pool,
        "prefix": {"hits": 3, "misses": 1, "evicted_pages": 0, "tokens": 48},
        "host": {"adapters": 2, "bytes": 200, "max_bytes": 1000, "evictions": 1},
        "disk": {"bytes": 0, "max_bytes": 0, "evictions": 0},
        "loads": {"waiting": 0, "running": 0, "failed": 0},
        "running": 0,
        "waiting": 0,
    }


def copy(**answer: Any) -> Json:
    what = "models" if "models" in answer else "cache"
    shown = {"what": what, "account": "1", "endpoint": "ep", "variant": "v", "component": "base"}
    return {**shown, "instance": "i-1", "ready_at": 5.0, **answer}


def models(**changes: Any) -> Json:
    model = {
        "target": "m.tar.gz", "loaded": True, "on_disk": True, "memory_bytes": 50,
        "accelerator_bytes": 0, "disk_bytes": 40, "last_used_s": 12.3, "hits": 7, "in_flight": 1,
        "pinned": False, "load_s": 0.25, "download_s": 1.5,
    }  # fmt: skip
    gone = {"target": "old.tar.gz", "tier": "memory", "freed_bytes": 9, "reason": "room"}
    return {
        "memory_bytes": 500,
        "disk_bytes": 400,
        "accelerator_bytes": 0,
        "models": [{**model, **changes}],
        "stuck": [],
        "evictions": [gone],
    }


CACHES: Json = {
    "copies": {},
    "left_out": 0,
    "endpoint": "ep",
    "declared": {
        "base": {
            "count": 2,
            "names": ["fr", "es"],
            "not_ready": {"es": {"status": "Creating", "reason": None}},
        }
    },
}


def shown(copies: Json, **params: str) -> Json:
    return document({"caches": {**CACHES, "copies": copies}}, params, now=1000.0)


@cases(
    "params, query",
    case("the list asks for no adapter by name", {}, {"limit": "0"}),
    case("one component", {"component": "base"}, {"component": "base", "limit": "500"}),
    case("one endpoint", {"endpoint": "ep"}, {"endpoint": "ep", "limit": "500"}),
)
def test_what_is_asked(params: dict[str, str], query: dict[str, str]) -> None:
    asked = sources(params, 0.0)["caches"]
    assert isinstance(asked, ProcessQuery)
    assert (asked.process, asked.path, asked.query) == ("control", "/internal/copy-caches", query)


@cases(
    "tiers, nearest",
    case("in the pool of one copy is near", ("pool", "disk"), "pool"),
    case("host memory before disk", ("disk", "host"), "host"),
    case("nowhere near", ("remote", "remote"), "remote"),
)
def test_an_adapter_is_one_row_over_its_copies(tiers: tuple[str, str], nearest: str) -> None:
    copies = {
        f"c-{number}": copy(cache=cache(fr=adapter(tier, requests=2)))
        for number, tier in enumerate(tiers)
    }
    doc = shown(copies, component="base")
    row = doc["rows"]["fr"]
    assert row["tier"] == nearest
    assert row["tiers"] == {"c-0": tiers[0], "c-1": tiers[1]}
    assert (row["requests"], row["tokens"], row["bytes"], row["uploads"]) == (4, 16, 100, 2)
    assert sum(row["hits"].values()) == 4
    assert doc["totals"]["requests"] == 4
    assert doc["totals"]["declared"] == 2


def test_declared_adapters_that_no_copy_names_are_listed_with_their_status() -> None:
    doc = shown({"c-1": copy(cache=cache(fr=adapter("pool", 1, code=3)))}, component="base")
    assert doc["others"] == ["es"]
    assert doc["notReady"] == {"es": {"status": "Creating", "reason": None}}
    assert doc["copies"]["c-1"]["codes"] == {"3": "fr"}
    assert doc["copies"]["c-1"]["pool"]["map"]["runs"] == [[3, 2], [0, 8]]


def test_the_list_has_a_row_for_each_keeper() -> None:
    copies = {
        "c-1": copy(cache=cache(fr=adapter("pool", 2))),
        "c-2": copy(fault="it did not answer in time"),
        "c-3": copy(models=models(), component=None, endpoint="mme"),
    }
    keepers = shown(copies)["keepers"]
    assert set(keepers) == {"base", "@mme"}
    assert (keepers["base"]["copies"], keepers["base"]["silent"]) == (2, 1)
    assert (keepers["base"]["registered"], keepers["base"]["adapterPages"]) == (3, 2)
    assert keepers["@mme"]["kind"] == "models"
    assert (keepers["@mme"]["inPool"], keepers["@mme"]["hostBytes"]) == (1, 50)


@cases(
    "changes, tier",
    case("loaded", {}, "host"),
    case("only on disk", {"loaded": False}, "disk"),
    case("known by its name", {"loaded": False, "on_disk": False}, "remote"),
)
def test_models_of_a_multi_model_endpoint(changes: Json, tier: str) -> None:
    copies = {"c-3": copy(models=models(**changes), component=None, endpoint="ep")}
    doc = shown(copies, endpoint="ep")
    row = doc["rows"]["m.tar.gz"]
    assert (doc["kind"], row["tier"], row["requests"], row["usedAt"]) == ("models", tier, 7, 980)
    assert [it["target"] for it in doc["evictions"]] == ["old.tar.gz"]


@cases(
    "answers, known, exists",
    case("nothing answered yet", {"caches": None}, False, False),
    case("no copy", {"caches": CACHES}, True, True),
    case("no such thing", {"caches": {**CACHES, "endpoint": None}}, True, False),
)
def test_before_there_is_anything(answers: Json, known: bool, exists: bool) -> None:
    doc = document(answers, {"component": "base"}, 0.0)
    assert (doc["known"], doc["exists"], doc["copies"], doc["rows"]) == (known, exists, {}, {})
