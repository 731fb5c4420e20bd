"""Decisions of the benchmarks themselves: verdicts, popularity, arrivals, converted weights."""

import argparse
import itertools
import json
import random
from pathlib import Path

import pytest
import torch
from benchmarks import many_adapters
from benchmarks.adapter_shelf import Popularity, Shelf, make_shelf
from benchmarks.aims import Finding, finding_rows, ratio
from benchmarks.engine_options import engine_config, parsed_options
from benchmarks.gateway_contest import Contest, contestants, findings
from benchmarks.mix_lines import describe_circumstances, format_mix_lines, parse_numbers
from benchmarks.peers.completions import HttpBatches, openai_body
from benchmarks.peers.contestant import Ask
from benchmarks.peers.gguf_files import interleaved
from benchmarks.peers.llama_cpp import body_of
from benchmarks.trace import Served, gamma_arrival_times, summary
from benchmarks.wrk import lua_string
from tests.cases import case, cases
from tests.models import tiny_llama

from hostelry.advisor.mix_file import parse_mix


@cases(
    "finding, verdict",
    case("exactly the least", Finding(what="w", value=4.0, at_least=4.0), "met"),
    case("under the least", Finding(what="w", value=3.99, at_least=4.0), "not met"),
    case("exactly the most", Finding(what="w", value=1.5, at_most=1.5), "met"),
    case("over the most", Finding(what="w", value=1.51, at_most=1.5), "not met"),
    case("without an aim", Finding(what="w", value=0.1), "no aim"),
    case(
        "a missing peer is said to be missing, never met",
        Finding(what="w", value=None, at_least=4.0, why="it is missing"),
        "not measured: it is missing",
    ),
)
def test_verdicts(finding: Finding, verdict: str) -> None:
    assert finding_rows([finding])[0]["verdict"] == verdict


@cases(
    "over, under, expected",
    case("both are known", 3.0, 2.0, 1.5),
    case("ours is unknown", None, 2.0, None),
    case("the peer's is unknown", 3.0, None, None),
    case("the peer did nothing", 3.0, 0.0, None),
)
def test_ratios(over: float | None, under: float | None, expected: float | None) -> None:
    assert ratio(over, under) == expected


def shelf_of(count: int) -> Shelf:
    names = [f"adapter-{number}" for number in range(count)]
    ranks = {name: (64, 32, 16, 8)[number % 4] for number, name in enumerate(names)}
    return Shelf(folders=dict.fromkeys(names, Path()), ranks=ranks)


@pytest.mark.parametrize("exponent", [0.0, 1.0], ids=["uniform", "zipf"])
def test_the_ranks_of_a_trace_do_not_depend_on_how_many_adapters_there_are(
    exponent: float,
) -> None:
    drawn = []
    for count in (5, 2000):
        shelf = shelf_of(count)
        popularity = Popularity(shelf, exponent)
        ranks, names = random.Random(1), random.Random(2)
        drawn.append([shelf.ranks[popularity.draw(ranks, names)] for _ in range(200)])
    assert drawn[0] == drawn[1]


def test_by_zipfs_law_the_first_of_a_rank_is_drawn_most() -> None:
    popularity = Popularity(shelf_of(400), 1.0)
    ranks, names = random.Random(1), random.Random(2)
    drawn = [popularity.draw(ranks, names) for _ in range(2000)]
    counts = {name: drawn.count(name) for name in set(drawn)}
    assert {name for name in counts if counts[name] > 72} == {f"adapter-{n}" for n in range(4)}
    assert len(counts) > 200


def test_adapters_of_a_shelf_share_weights_but_are_all_different(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "model")
    shelf = make_shelf(tmp_path / "shelf", model, (8, 4), 6, seed=1, files_per_rank=1)
    weights = [folder / "adapter_model.safetensors" for folder in shelf.folders.values()]
    assert len({file.stat().st_ino for file in weights}) == 2
    configs = [
        json.loads((folder / "adapter_config.json").read_text())
        for folder in shelf.folders.values()
    ]
    assert len({(config["r"], config["lora_alpha"]) for config in configs}) == 6
    assert [config["r"] for config in configs] == list(shelf.ranks.values()) == [8, 4] * 3
    again = make_shelf(tmp_path / "shelf", model, (8, 4), 6, seed=1, files_per_rank=1)
    assert again == shelf


def test_arrivals_have_the_rate_and_the_spread_that_were_asked_for() -> None:
    times = list(gamma_arrival_times(random.Random(3), per_s=20.0, cv=2.0, duration_s=500.0))
    gaps = [after - before for before, after in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(1 / 20, rel=0.1)
    assert deviation / mean == pytest.approx(2.0, rel=0.1)


def served(first_at_s: float | None, ended_at_s: float | None, error: str | None) -> Served:
    return Served(
        at_s=1.0,
        tenant=None,
        adapter=None,
        num_tokens=2,
        first_token_at_s=first_at_s,
        ended_at_s=ended_at_s,
        error=error,
    )


def test_what_failed_or_never_ended_counts_as_endless() -> None:
    row = summary(
        [served(2.0, 3.0, None), served(None, 3.0, "refused"), served(9.0, None, None)], took_s=10.0
    )
    assert row["failed"] == 2
    assert row["requests/s"] == pytest.approx(0.1)
    assert row["first p99 s"] == row["whole p99 s"] == float("inf")
    assert row["first within 6 s"] == pytest.approx(1 / 3)


def test_rows_of_a_head_alternate_between_the_halves_that_rotate_together() -> None:
    up_OR = torch.arange(8).reshape(8, 1)
    assert interleaved(up_OR, 2).flatten().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_llama_cpp_gets_the_scale_of_every_adapter() -> None:
    body = body_of(Ask(prompt=(1,), adapter="b", max_tokens=2), ["a", "b", "c"])
    assert [each["scale"] for each in body["lora"]] == [0.0, 1.0, 0.0]
    assert body["cache_prompt"] is False


def test_an_openai_request_names_its_adapter_as_the_model() -> None:
    ask = Ask(prompt=(1, 2), adapter=None, max_tokens=3)
    assert openai_body(ask, "base")["model"] == "base"
    assert HttpBatches(port=1, body_of=lambda it: openai_body(it, "x")).body_of(ask)["prompt"] == [
        1,
        2,
    ]


def test_engine_settings_come_from_plain_values() -> None:
    config = engine_config(parsed_options(["max_batch_size=7", 'dtype="fp32"']))
    assert (config.max_batch_size, config.dtype) == (7, "fp32")


@cases(
    "pairs, message",
    case("an unknown setting", ["no_such_setting=1"], "no setting no_such_setting"),
    case("a setting without a value", ["max_batch_size"], "not NAME=JSON"),
    case("a value that the engine refuses", ["max_batch_size=0"], "at least 1"),
    case("a value of another type", ['max_batch_size="many"'], "Expected"),
)
def test_engine_settings_that_cannot_be_are_refused(pairs: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        engine_config(parsed_options(pairs))


def test_the_gateway_is_compared_at_its_best_with_each_peer_at_its_best() -> None:
    contest = Contest(
        duration_s=1,
        connections=(1, 32),
        workers=(1, 2),
        rounds=1,
        attempts=1,
        peers=("litserve", "bentoml"),
    )
    rows = [
        {"server": name, "connections": 32, "requests/s": speed, "p50 ms": p50, "p99 ms": 2.0}
        for name, speed, p50 in (
            ("hostelry", 8000, 3.0),
            ("hostelry", 12000, 4.0),
            ("litserve", 2000, 6.0),
            ("litserve", 3000, 9.0),
        )
    ]
    found = {it.what: it for it in findings(rows, contest, {"bentoml": "it is not there"})}
    speed = found["32 connections: requests/s, ours / litserve"]
    assert (speed.value, speed.at_least) == (4.0, 4.0)
    assert found["32 connections: p50, ours / litserve"].value == 0.5
    assert found["1 connections: p50, ours / litserve"].value is None
    assert found["32 connections: p99, ours / bentoml"].verdict == "not measured: not installed"


def test_requests_reach_wrk_byte_for_byte() -> None:
    assert lua_string(b'a"\\\r\n\x00\xff1') == '"\\097\\034\\092\\013\\010\\000\\255\\049"'


@pytest.mark.parametrize(
    ("given", "expected"),
    [("", ()), ("litserve", ("litserve",)), ("bentoml,ray-serve", ("bentoml", "ray-serve"))],
)
def test_which_peers_are_asked_for(given: str, expected: tuple[str, ...]) -> None:
    assert contestants(given) == expected


def test_an_unknown_peer_is_named_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="triton: there are ray-serve, litserve, bentoml"):
        contestants("triton")


@cases(
    "text, numbers",
    case("in order, each once", "64,1,16,1", (1, 16, 64)),
    case("nothing", "", None),
    case("a gap", "1,,2", None),
    case("zero", "0", None),
    case("a negative number", "-1", None),
    case("a fraction", "1.5", None),
    case("a digit of another script", "\u0663", None),
    case("a huge number", "1" * 10_000, None),
    case("too many", "1," * 10_000, None),
)
def test_numbers_of_a_command_line(text: str, numbers: tuple[int, ...] | None) -> None:
    if numbers is not None:
        assert parse_numbers(text) == numbers
        return
    with pytest.raises(argparse.ArgumentTypeError):
        parse_numbers(text)


@cases(
    "arguments, message",
    case("ranks of no lines", ("--ranks", "8"), "--ranks goes with --mix-lines"),
    case("a base of no lines", ("--base", "b"), "--base goes with --mix-lines"),
    case("compared settings", ("--mix-lines", "--compare", "dtype=1"), "--compare does not go"),
    case("a base that no mix can have", ("--mix-lines", "--base", 'a"b'), "--base is"),
    case("no round", ("--mix-lines", "--rounds", "0"), "--rounds"),
    case("a file that exists", ("--mix-lines", __file__), "exists; name a new file"),
    case("a file without a folder", ("--mix-lines", "/nowhere/a.toml"), "has no folder"),
)
def test_options_of_mix_lines(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        many_adapters.parse(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("base", [None, "chat"])
def test_the_lines_for_a_mix_are_read_by_hostelry_fit(base: str | None, tmp_path: Path) -> None:
    points = [
        {"rank": 8, "adapters": count, "tokens/s": per_s}
        for count, per_s in ((1, 1_234_567.0), (64, 0.125))
    ]
    about = describe_circumstances(tmp_path / "a\nb", {"num_threads": 2})
    model = "memory_mb = 1\ntarget_p99_ms = 1\nseconds = 1\n"
    text = (
        'name = "m"\naxes.cost = { unacceptable = 2.0, target = 0.1 }\n'
        '[[machines]]\ntype = "ml.m5.xlarge"\n'
        f'[[models]]\nname = "chat"\n{model}[[models]]\nname = "a"\nadapter_of = "chat"\n{model}'
    )
    mix = parse_mix(text + format_mix_lines(points, base, about), tmp_path / "mix.toml")
    found = [(it.base, it.rank, it.adapters, it.tokens_per_s) for it in mix.adapter_throughput]
    assert found == [("chat", 8, 1, 1_234_570.0), ("chat", 8, 64, 0.125)]
