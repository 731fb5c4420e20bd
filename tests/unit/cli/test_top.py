"""Looks at a platform: the document, its text, tokens per second, and the effects of keys."""

from typing import Any

from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.cli.top.command import after_key, fitting, look_lines
from hostelry.cli.top.document import (
    ProcessUse,
    TopChoice,
    TopLook,
    token_counts,
    token_rates,
    top_document,
)

GIB = 1024**3
LATENCY = {"p50": 12.0, "p90": 20.0, "p99": 12_345.0}
INSTANCE = {
    "id": "i-1",
    "variant": "all",
    "type": "ml.m5.large",
    "state": "InService",
    "cpus": 2.0,
    "memory_bytes": 8 * GIB,
    "accelerators": 0,
    "free": {"cpus": 0.5, "memory_bytes": 6 * GIB, "accelerators": 0},
}
COPY = {
    "id": "c-1",
    "instance": "i-1",
    "phase": "ready",
    "memory_bytes": GIB,
    "pid": 7,
    "reserved": {"cpus": 1.5},
}
PAGE = """# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{model_name="m",endpoint="ep",component="base",copy="c-1"} 100.0
vllm:generation_tokens_total{model_name="m",endpoint="ep",component="base",copy="c-2"} 50.0
vllm:generation_tokens_total{endpoint="alone",component="",copy="c-3"} 7.0
vllm:prompt_tokens_total{component="base",copy="c-1"} 9.0
"""


def component(name: str, base: str | None = None, ready: int = 1) -> dict[str, Any]:
    return {
        "name": name,
        "status": "InService",
        "base": base,
        "ready_copies": ready,
        "desired_copies": 2,
    }


def load(component: str | None, rate: float, variant: str = "all") -> dict[str, Any]:
    return {
        "endpoint": "ep",
        "variant": variant,
        "component": component,
        "arrivals_per_s": rate,
        "errors_5xx_per_s": rate / 10,
        "in_flight": 1.5,
        "held": 2,
        "latency_ms": LATENCY if rate else None,
        "first_chunk_ms": None,
    }


ENDPOINT = {
    "name": "ep",
    "status": "InService",
    "takes_components": True,
    "components": [component("base"), component("fr", base="base"), component("idle", ready=0)],
    "variants": [{"name": "all", "desired_instances": 1}],
    "instances": [INSTANCE],
    "copies": [COPY],
}
PLAIN = {**ENDPOINT, "name": "plain", "takes_components": False, "components": []}
LOOK = TopLook(
    at=100.0,
    processes=[
        ProcessUse(name="gateway-1", pid=5, cpu_percent=12.3, memory_bytes=GIB),
        ProcessUse(name="control", pid=None, cpu_percent=None, memory_bytes=None),
    ],
    state={"endpoints": [ENDPOINT, PLAIN]},
    load={"names": [load("base", 10.0), load("fr", 30.0)]},
    tokens_per_s={"base": 55.5},
    copy_cpu={"c-1": 80.0},
)


def test_a_look_has_what_is_served_with_its_load_and_the_sums() -> None:
    found = top_document(LOOK, TopChoice())
    assert [it["name"] for it in found["served"]] == ["fr", "base", "idle", "plain"]
    fr, base, idle, plain = found["served"]
    assert (fr["requests_per_s"], fr["errors_per_s"], fr["p99_ms"]) == (30.0, 3.0, 12_345.0)
    assert (base["tokens_per_s"], base["copies"], base["desired_copies"]) == (55.5, 1, 2)
    assert (idle["requests_per_s"], idle["p50_ms"], idle["held"]) == (0.0, None, 0)
    assert (plain["copies"], plain["desired_copies"]) == (1, 1)
    totals = found["totals"]
    assert (totals["requests_per_s"], totals["held"], totals["tokens_per_s"]) == (40.0, 4, 55.5)
    assert totals["copies"] == 2, "an adapter's copies are its base's"
    (instance, _) = found["instances"]
    assert (instance["cpus_reserved"], instance["memory_bytes_reserved"]) == (1.5, 2 * GIB)
    assert (instance["cpu_percent_used"], instance["memory_bytes_used"]) == (80.0, GIB)


@cases(
    "changes, known",
    case("control does not answer", {"state": None, "load": None}, None),
    case("the load", {"load": None}, "- req/s, - err/s, - in flight, - queued"),
)
def test_what_is_not_known_is_no_zero(changes: dict[str, Any], known: str | None) -> None:
    found = top_document(replace(LOOK, **changes), TopChoice())
    assert (found["totals"] is None) == (known is None)
    first = look_lines(found)[0]
    assert known in first if known else first.startswith("Control does not answer")
    assert not any(" 0 " in line for line in look_lines(found)[-4:] if "InService" in line)


def test_a_row_serves_nothing_and_a_copy_of_a_model_has_its_whole_instance() -> None:
    ends = {**COPY, "phase": "unhealthy", "reserved": None}
    look = replace(LOOK, state={"endpoints": [{**PLAIN, "copies": [ends]}]})
    found = top_document(look, TopChoice())
    assert "InService, serves nothing" in "\n".join(look_lines(found))
    assert found["instances"][0]["cpus_reserved"] == INSTANCE["cpus"]


@cases(
    "choice, names",
    case("by name", TopChoice(sort="name"), ["base", "fr", "idle", "plain"]),
    case("the first by tokens", TopChoice(sort="tokens", rows=1), ["base"]),
    case("those with a part in their name", TopChoice(part="la"), ["plain"]),
)
def test_what_is_chosen(choice: TopChoice, names: list[str]) -> None:
    found = top_document(LOOK, choice)
    assert [it["name"] for it in found["served"]] == names
    left_out = 4 if choice.part == "" else 1
    assert found["served_not_shown"] == left_out - len(names)
    assert found["totals"]["served"] == left_out


def test_a_thousand_components_are_bounded_rows_and_whole_sums() -> None:
    many = {**ENDPOINT, "components": [component(f"c{it}") for it in range(1000)]}
    loads = {"names": [load(f"c{it}", 1.0) for it in range(1000)]}
    look = TopLook(at=0.0, processes=(), state={"endpoints": [many]}, load=loads)
    found = top_document(look, TopChoice(rows=20))
    assert (len(found["served"]), found["served_not_shown"]) == (20, 980)
    assert found["totals"]["requests_per_s"] == 1000.0
    assert len(look_lines(found)) < 40


def test_a_look_as_text() -> None:
    text = "\n".join(look_lines(top_document(LOOK, TopChoice(rows=2))))
    assert (
        "2 endpoints, 4 served, 2 of 5 copies   40.0 req/s, 4.0 err/s, 3.0 in flight, 4 queued"
        in text
    )
    assert "gateway-1  12 %  1.0 GB" in text or "gateway-1  12 %" in text
    assert "control" in text
    assert "12.3 s" in text
    assert "... and 2 more rows (by requests)" in text


@cases(
    "state, words",
    case("without control", None, "Control does not answer"),
    case("without endpoints", {"endpoints": []}, "No endpoints."),
)
def test_a_look_at_little(state: dict[str, Any] | None, words: str) -> None:
    look = TopLook(at=0.0, processes=LOOK.processes, state=state, load=None)
    lines = look_lines(top_document(look, TopChoice()))
    assert any(words in it for it in lines)
    assert fitting(lines, 10, 3) == [it[:10] for it in lines[:3]]


def test_tokens_a_second_are_those_of_all_copies() -> None:
    before = token_counts(PAGE)
    assert before == {("base", "c-1"): 100.0, ("base", "c-2"): 50.0, ("alone", "c-3"): 7.0}
    now = {("base", "c-1"): 140.0, ("base", "c-2"): 10.0, ("base", "c-9"): 1000.0}
    rates = token_rates(before, now, 2.0)
    assert rates == {"base": 20.0}, "a copy that is new or began again adds nothing yet"


@cases(
    "keys, typed, choice",
    case("s orders by the next column", "s", None, TopChoice(sort="latency")),
    case("j shows more rows", "j", None, TopChoice(rows=25)),
    case("k shows fewer, five at least", "kkkkk", None, TopChoice(rows=5)),
    case("a filter while it is typed", "/cha", "cha", TopChoice()),
    case("a filter that was mended", "/chx\x7fat\n", None, TopChoice(part="chat")),
    case("a filter that was left", "/ch\x1b", None, TopChoice()),
    case("another key", "x", None, TopChoice()),
)
def test_keys(keys: str, typed: str | None, choice: TopChoice) -> None:
    now: str | None = None
    chosen = TopChoice()
    for key in keys:
        now, chosen = after_key(key, now, chosen)
    assert (now, chosen) == (typed, choice)
