"""docs/choosing.md and its mixes follow from the measured file, and rules judge statements."""

from pathlib import Path
from typing import Any

import pytest
from benchmarks.choosing import CHARTS, MEASURED, MIX_FOLDER, PAGE, fill_mixes, read_measured
from benchmarks.choosing_claims import (
    AXES,
    STATEMENTS,
    STORIES,
    Numbers,
    Rule,
    expect_answers,
    expect_between,
    expect_cheaper,
    expect_fewer_objects,
    expect_ratio,
    expect_saving,
    expect_time,
    judge_pick,
    skip_accelerator,
)
from benchmarks.choosing_mixes import (
    CALIBRATION,
    MIXES,
    advise_mix,
    fill_mix,
    index_rows,
    show_spread,
)
from benchmarks.choosing_mixes import STORIES as AS_ASSUMED
from benchmarks.choosing_page import BEGIN, END, build_part, read_part, replace_part
from tests.cases import case, cases

from hostelry.advisor.mix_file import read_mix

ENDLESS = float("inf")


def test_the_page_is_the_one_that_the_measured_file_gives() -> None:
    assert read_part(PAGE.read_text(encoding="utf-8")) == build_part(read_measured(MEASURED))


def test_the_mixes_have_the_measured_values(tmp_path: Path) -> None:
    names = [CALIBRATION, *(f"{name}.toml" for name in MIXES)]
    for name in names:
        (tmp_path / name).write_bytes((MIX_FOLDER / name).read_bytes())
    fill_mixes(tmp_path, read_measured(MEASURED))
    for name in names:
        assert (tmp_path / name).read_bytes() == (MIX_FOLDER / name).read_bytes(), name


@pytest.mark.parametrize("name", MIXES)
def test_each_mix_has_a_chart_of_its_ranked_options(name: str) -> None:
    advice = read_measured(MEASURED)["mixes"][name]
    chart = (CHARTS / f"{name}.svg").read_text(encoding="utf-8")
    for place, (option, found) in enumerate(advice["options"].items(), start=1):
        assert f"{place}. {option}, shortfall {found['shortfall']:.3f}" in chart


@pytest.mark.parametrize("name", MIXES)
def test_only_mixes_with_measured_times_count_as_measured(name: str) -> None:
    mix = read_mix(MIX_FOLDER / f"{name}.toml")
    assert all(it.is_measured for it in mix.models) is (name not in AS_ASSUMED)
    assert len(mix.models) == read_measured(MEASURED)["mixes"][name]["models"]


def test_every_statement_can_be_judged() -> None:
    measured = read_measured(MEASURED)
    numbers = Numbers(rows=index_rows(measured["options"]), mixes=measured["mixes"])
    for statement in STATEMENTS:
        assert statement.rule(numbers).why
    assert {mix for it in STORIES for mix in it.mixes} <= {*MIXES}


def option(cost: float | None = 1.0, **given: Any) -> dict[str, Any]:
    return {
        "shortfall": given.pop("shortfall", 0.1),
        "unacceptable": [],
        "scores": dict.fromkeys(AXES, 1.0) | given.pop("scores", {}),
        "texts": {axis: f"the {axis}" for axis in AXES},
        "cost": cost,
        **given,
    }


def numbers(pick: str | None, rows: dict[str, Any] | None = None, **options: Any) -> Numbers:
    mix = {
        "pick": pick,
        "weights": dict.fromkeys(AXES, 1.0) | {"latency": 2.0},
        "options": options,
        "refused": {"batch": "it comes later"},
        "not_ranked": {},
    }
    return Numbers(rows=rows or {}, mixes={"mix": mix})


@cases(
    "found, agrees, why",
    case("the option is picked", numbers("own", own=option(), zero=option(0.25)), True,
         "picks own: for 1,000 calls own 1, zero 0.25"),
    case("a gate is closed", numbers("zero", zero=option()), False, "batch cannot work: it comes"),
    case("as good as the pick",
         numbers("zero", zero=option(), own=option(shortfall=0.1001)), True, "scores own as high"),
    case("unacceptable", numbers("zero", zero=option(), batch=option(unacceptable=["cost"])),
         False, "batch is unacceptable on cost: the cost"),
    case("behind on an axis",
         numbers("zero", zero=option(), batch=option(scores={"latency": 0.5}, shortfall=0.2)),
         False, "on latency zero has the latency, batch has"),
    case("no option is acceptable", numbers(None, batch=option(unacceptable=["cost"])),
         False, "picks no option, and"),
)  # fmt: skip
def test_picks_are_compared(found: Numbers, agrees: bool, why: str) -> None:
    expected = "own" if agrees else "batch"
    verdict = judge_pick(found, "mix", (expected,))
    assert verdict.agrees is agrees
    assert why in verdict.why


ROWS = {"own": {"ms": 4.0, "s": 2000.0}, "shared": {"ms": 6.0}}
BOTH = numbers(
    "own",
    ROWS,
    own=option(10.0, answered=1.0, num_objects=5.0, p99_s=90.0),
    shared=option(1.0, answered=0.999, num_objects=3.0, p99_s=None),
    free=option(None),
)


@cases(
    "rule, agrees, why",
    case("cheaper", expect_cheaper("mix", "shared", "own"), True, "own 10, shared 1 for"),
    case("ten times cheaper", expect_cheaper("mix", "shared", "own", 10.0), True, "10 times"),
    case("not twenty times cheaper",
         expect_cheaper("mix", "shared", "own", 20.0), False, "10 times"),
    case("dearer", expect_cheaper("mix", "own", "shared"), False, "0.1 times"),
    case("an unknown cost", expect_cheaper("mix", "free", "own"), None, "free was not simulated"),
    case("an option that was refused",
         expect_cheaper("mix", "batch", "own"), None, "it comes later"),
    case("nine tenths saved", expect_saving("mix", "shared", "own"), True, "saves 90.0%"),
    case("nothing saved", expect_saving("mix", "own", "shared"), False, "saves -900.0%"),
    case("saving of none", expect_saving("mix", "batch", "own"), None, "it comes later"),
    case("a number in its range", expect_between("own", "ms", 1.0, 5.0, "it takes"), True, "4 ms"),
    case("too small", expect_between("own", "s", 3.0, 5.0, "it takes", 1000.0), False, "2 s, less"),
    case("too large", expect_between("own", "ms", 1.0, 2.0, "it takes"), False, "4 ms, more"),
    case("a ratio", expect_ratio(("shared", "ms"), ("own", "ms"), 1.2, ENDLESS), True, "1.5 times"),
    case("too small a ratio",
         expect_ratio(("own", "s"), ("own", "ms"), 0.0, 2.0), False, "500 times"),
    case("all answered", expect_answers("mix", "own"), True, "100.0000%"),
    case("one lost", expect_answers("mix", "shared"), False, "99.9000%"),
    case("answers of none", expect_answers("mix", "batch"), None, "it comes later"),
    case("a time", expect_time("mix", "own", "p99_s", 60.0, 600.0, "p99"), True, "p99 90.0 s"),
    case("too short a time",
         expect_time("mix", "own", "p99_s", 91.0, 600.0, "p99"), False, "90.0 s"),
    case("no time", expect_time("mix", "shared", "p99_s", 0.0, 1.0, "p99"), None, "not simulated"),
    case("fewer objects",
         expect_fewer_objects("mix", "shared", "own"), True, "shared 3 objects, own 5"),
    case("more objects", expect_fewer_objects("mix", "own", "shared"), False, "own 5 objects"),
    case("objects of none", expect_fewer_objects("mix", "own", "batch"), None, "it comes later"),
    case("no accelerator", skip_accelerator, None, "no accelerator"),
)  # fmt: skip
def test_rules(rule: Rule, agrees: bool | None, why: str) -> None:
    verdict = rule(BOTH)
    assert verdict.agrees is agrees
    assert why in verdict.why


def test_a_page_without_its_marks_is_refused() -> None:
    assert replace_part(f"a\n{BEGIN}\nold\n{END}\nb\n", "new") == f"a\n{BEGIN}\n\nnew\n{END}\nb\n"
    with pytest.raises(ValueError, match="needs the lines"):
        replace_part(f"a\n{BEGIN}\nold\n", "new")


def test_only_tables_with_measured_times_are_filled() -> None:
    rows = index_rows(read_measured(MEASURED)["options"])
    text = '[axes]\nseconds = 1\n\n[[models]]\nname = "a"\nseconds = 1\n'
    assert fill_mix(text, rows, "2026-01-02") == text
    filled = fill_mix(f'{text}measured = "x"\nother = 1\n', rows, "2026-01-02")
    assert "[axes]\nseconds = 1\n" in filled
    assert "    # call of a dedicated endpoint" in filled
    assert 'measured = "2026-01-02"\nother = 1\n' in filled


def test_the_memory_of_an_adapter_is_kept() -> None:
    rows = index_rows(read_measured(MEASURED)["options"])
    base = '\n[[models]]\nmemory_mb = 1\ncalibration = "llm.json"\n'
    filled = fill_mix(f"{base}{base}adapter_of = 'base'\n", rows, "2026-01-02")
    assert filled.count("memory_mb = 1\n") == 1


def test_a_spread_never_falls() -> None:
    keys = ("call min ms", "call ms", "call p90 ms", "call p99 ms", "call max ms")
    row = dict(zip(keys, (1.0, 2.0, 2.0, 3.0, 8.0), strict=True))
    assert show_spread(row) == "[[0, 0.5], [0.5, 1], [0.9, 1], [0.99, 1.5], [1, 4]]"


def test_an_advice_becomes_numbers_and_a_chart(tmp_path: Path) -> None:
    mix = (MIX_FOLDER / "infrequent.toml").read_text(encoding="utf-8")
    (tmp_path / "mix.toml").write_text(mix.replace("hours = 24.0", "hours = 0.5"))
    found, chart = advise_mix(tmp_path, "mix", lambda _: None)
    assert found["models"] == 1
    assert {*found["options"], *found["refused"]} >= {"dedicated", "serverless", "multi-model"}
    assert found["options"]["dedicated"]["num_objects"] > 0
    assert chart.startswith("<svg ")
