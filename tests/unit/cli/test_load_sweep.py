"""`hostelry load --sweep`: its options, its cells, and the text of its result."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.load.find import FindOptions
from hostelry.cli.load.measure import LoadResult
from hostelry.cli.load.model_copy import ModelCopies
from hostelry.cli.load.options import LoadOptions
from hostelry.cli.load.question import LoadQuestion
from hostelry.cli.load.sweep import (
    CellResult,
    SweepCell,
    SweptOption,
    build_cells,
    read_sweeps,
    sweep_document,
    sweep_lines,
)
from hostelry.cli.load.sweep_run import Sweep
from hostelry.cli.named import NamedModel, NameKind
from hostelry.loadtest.tally import LoadTally, result_document

CONCURRENCY = SweptOption("concurrency", (1, 2))
DTYPE = SweptOption("env:DTYPE", ("fp32", "bf16"))


@cases(
    "texts, swept",
    case("whole numbers", ["concurrency=1,2"], [CONCURRENCY]),
    case("numbers", ["rate=0.5,20"], [SweptOption("rate", (0.5, 20.0))]),
    case("files", ["body=a.csv,b.csv"], [SweptOption("body", ("a.csv", "b.csv"))]),
    case("a single value", ["max-tokens=16"], [SweptOption("max-tokens", (16,))]),
    case("a value with a sign of equality", ["env:ARGS=a=1,a=2"],
        [SweptOption("env:ARGS", ("a=1", "a=2"))]),
    case("deployments first, as each takes long", ["concurrency=1,2", "env:DTYPE=fp32,bf16"],
        [DTYPE, CONCURRENCY]),
    case("the settings of copies",
        ["copies=1,2", "cpus=0.5", "memory-mb=512", "instance-type=ml.m5.large"],
        [SweptOption("copies", (1, 2)), SweptOption("cpus", (0.5,)),
         SweptOption("memory-mb", (512,)), SweptOption("instance-type", ("ml.m5.large",))]),
)  # fmt: skip
def test_sweeps_are_read(texts: list[str], swept: list[SweptOption]) -> None:
    assert read_sweeps(texts, finds=False) == swept


@cases(
    "texts, finds, text",
    case("no values", ["concurrency"], False, "expected different values"),
    case("an empty value", ["concurrency=1,,2"], False, "expected different values"),
    case("a value twice", ["concurrency=1,1"], False, "expected different values"),
    case("an unknown option", ["threads=1"], False,
        "--sweep threads=1: expected OPTION=VALUE,VALUE with one of concurrency, rate"),
    case("no option", ["=1"], False, "expected OPTION=VALUE,VALUE"),
    case("a variable without a name", ["env:=1"], False, "expected OPTION=VALUE,VALUE"),
    case("no number", ["concurrency=1,many"], False,
        "--sweep concurrency=many: expected a whole number"),
    case("no rate", ["rate=fast"], False, "--sweep rate=fast: expected a number"),
    case("a number of 5,000 digits", [f"concurrency={'9' * 5000}"], False, "--sweep concurrency="),
    case("below the least value", ["concurrency=0"], False, "concurrency=0: expected 1 to 10000"),
    case("above the highest value", ["concurrency=10001"], False, "expected 1 to 10000"),
    case("a rate of zero", ["rate=0"], False, "--sweep rate=0: expected at least 0.01"),
    case("a rate without an end", ["rate=inf"], False, "--sweep rate=inf: expected at least"),
    case("a rate that is no number", ["rate=nan"], False, "--sweep rate=nan: expected at least"),
    case("an unknown instance type", ["instance-type=ml.nope"], False,
         "--sweep instance-type=ml.nope: ml.nope is not a known type of SageMaker"),
    case("an option twice", ["rate=1", "rate=2"], False, "--sweep rate is given twice"),
    case("too many combinations", [f"concurrency={','.join(map(str, range(1, 12)))}",
        f"max-tokens={','.join(map(str, range(1, 11)))}"], False,
        "--sweep has 110 combinations of values, more than 100"),
    case("a concurrency that --find looks for", ["concurrency=1"], True,
        "--find looks for a concurrency, so it excludes --sweep concurrency"),
    case("a rate that --find does not keep", ["rate=1"], True, "excludes --sweep rate"),
)  # fmt: skip
def test_invalid_sweeps_are_refused(texts: list[str], finds: bool, text: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_sweeps(texts, finds=finds)
    assert text in str(raised.value)


def test_cells_are_all_combinations_and_deployments_change_least_often() -> None:
    cells = build_cells([DTYPE, CONCURRENCY])
    assert [it.label for it in cells] == [
        "env:DTYPE=fp32 concurrency=1",
        "env:DTYPE=fp32 concurrency=2",
        "env:DTYPE=bf16 concurrency=1",
        "env:DTYPE=bf16 concurrency=2",
    ]
    assert cells[0].copy_values == {"env:DTYPE": "fp32"}


def question(**given: Any) -> LoadQuestion:
    none = dict.fromkeys(("prompt", "prompt_characters", "max_tokens", "file", "content_type"))
    return LoadQuestion(**{**none, **given})


def options(**given: Any) -> LoadOptions:
    none = dict.fromkeys(("adapters", "concurrency", "rate", "duration", "limits"))
    return LoadOptions(**{**none, "question": question(), **given})


@cases(
    "values, changed",
    case("the load", {"concurrency": 8, "rate": 2.0}, {"concurrency": 8, "rate": 2.0}),
    case("the prompt", {"max-tokens": 7, "prompt-characters": 9},
        {"max_tokens": 7, "prompt_characters": 9}),
    case("the file", {"body": "a.csv"}, {"body": "a.csv"}),
    case("copies do not change the requests", {"copies": 2, "env:A": "b"}, {}),
)  # fmt: skip
def test_a_cell_replaces_options(values: dict[str, Any], changed: dict[str, Any]) -> None:
    shown = options().replace_values(values).as_json
    expected = {**options().as_json, **changed}
    if "body" in changed:
        del expected["prompt"], expected["max_tokens"]
    assert shown == expected


@cases(
    "base, values, text",
    case("a file and a prompt", options(question=question(prompt="x")), {"body": "a.csv"},
        "--prompt is for a prompt, and --body is a file"),
    case("a file and a number of tokens", options(question=question(file="a.csv")),
        {"max-tokens": 5}, "--max-tokens is for a prompt"),
    case("a file and a length", options(), {"body": "a", "prompt-characters": 5},
        "--prompt-characters is for a prompt"),
    case("too many requests", options(duration=86_400.0), {"rate": 1000.0}, "are over 10000000"),
)  # fmt: skip
def test_a_cell_that_contradicts_an_option_is_refused(
    base: LoadOptions, values: dict[str, Any], text: str
) -> None:
    with pytest.raises(TerminalError, match=text):
        base.replace_values(values)


def test_a_search_has_other_defaults() -> None:
    search = options(limits=FindOptions(250.0, None, None, None, None))
    assert (search.num_connections, search.duration_s) == (256, 20.0)
    assert (options().num_connections, options().duration_s) == (4, 10.0)


@cases(
    "given, length, text",
    case("repeated", "ab", 7, "ab ab a"),
    case("cut", "abcdef", 3, "abc"),
    case("as it is", "abc", None, "abc"),
    case("one repetition fits exactly", "ab", 5, "ab ab"),
)
def test_a_prompt_has_the_length_that_was_asked_for(
    given: str, length: int | None, text: str
) -> None:
    assert question(prompt=given, prompt_characters=length).text == text


def measured(
    cell: SweepCell, latency_s: float, num_tokens: int = 0, **search: object
) -> CellResult:
    """The result of a cell whose answers all take the same time."""
    tally = LoadTally(num_ok=100, measured_s=10.0, num_tokens=num_tokens)
    tally.latencies = array("d", [latency_s] * 100)
    document = result_document(tally, "llama", {}, "")
    return CellResult(cell, {**document, "search": search} if search else document, None)


FIRST, SECOND = build_cells([CONCURRENCY])


def test_the_table_has_a_row_for_each_cell() -> None:
    results = [measured(FIRST, 0.1), CellResult(SECOND, None, "the first\x1b[2J request failed")]
    lines = sweep_lines("llama", [CONCURRENCY], results, 4)
    assert lines == [
        "llama: 1 of 4 combinations measured",
        "",
        "concurrency  REQ/S  LATENCY P50  LATENCY P99  ERRORS",
        "1            10     100 ms       100 ms       0",
        "2            -      -            -            -",
        "",
        "concurrency=2: the first[2J request failed",
    ]
    assert sweep_lines("llama", [CONCURRENCY], [], 4) == ["llama: 0 of 4 combinations measured"]


def test_the_table_of_searches_has_the_concurrencies_that_were_found() -> None:
    results = [
        measured(FIRST, 0.1, 500, concurrency=8, limited_by="limit"),
        measured(SECOND, 0.1, 500, concurrency=None, limited_by="limit"),
    ]
    lines = sweep_lines("llama", [CONCURRENCY], results, 2)
    heads, first, second = (line.split("  ") for line in lines[2:5])
    assert heads[1:3] == ["FOUND CONCURRENCY", "LIMITED BY"]
    assert "TOKENS/S" in lines[2]
    assert [it.strip() for it in first if it.strip()][1:3] == ["8", "limit"]
    assert [it.strip() for it in second if it.strip()][1:3] == ["none", "limit"]


def test_errors_and_warnings_of_a_cell_name_it() -> None:
    tally = LoadTally(num_ok=1, measured_s=1.0, cpu_s=0.95)
    tally.fail("503", "later")
    result = CellResult(FIRST, result_document(tally, "x", {}, ""), None)
    *_, error, warning = sweep_lines("x", [CONCURRENCY], [result], 1)
    assert error == "concurrency=1: errors  1 x 503: later"
    assert warning.startswith("concurrency=1: This client used 95% of the one core")


def test_a_document_has_the_values_and_the_result_of_each_cell() -> None:
    document = sweep_document({"target": "x"}, [DTYPE], [CellResult(FIRST, None, "it failed")])
    assert document == {
        "target": "x",
        "sweep": {
            "options": {"env:DTYPE": ["fp32", "bf16"]},
            "cells": [{"values": {"concurrency": 1}, "problem": "it failed", "result": None}],
        },
    }


ECHO = NamedModel(kind=NameKind.ENDPOINT, endpoint="echo")


class FakeCopies:
    """Records deployments. The dtype `bf16` fails."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def check(self, values: Mapping[str, Any]) -> None:
        """Every value is possible."""

    def deploy(self, values: Mapping[str, Any]) -> NamedModel:
        """An endpoint with the name of the dtype."""
        dtype = values["env:DTYPE"]
        self.events.append(f"deploy {dtype}")
        if dtype == "bf16":
            raise TerminalError("no room")
        return NamedModel(kind=NameKind.ENDPOINT, endpoint=dtype)

    def remove(self) -> None:
        """Record the removal."""
        self.events.append("remove")


def sweep_with(
    copies: FakeCopies, swept: list[SweptOption], measure: Callable[[SweepCell], LoadResult]
) -> tuple[list[CellResult], bool]:
    """Run a sweep whose cells are measured by `measure`, and record them."""

    def record(cell: SweepCell, models: Sequence[NamedModel]) -> LoadResult:
        copies.events.append(f"{models[0].endpoint} {cell.values.get('concurrency')}")
        return measure(cell)

    opened = cast("ModelCopies", copies)
    return Sweep([ECHO], swept, record, lambda: nullcontext(opened)).measure_cells()


def answered(cell: SweepCell) -> LoadResult:
    return LoadResult(document={}, lines=[], problem=None, is_interrupted=False)


def test_each_deployment_is_measured_with_all_values_of_the_load_and_removed() -> None:
    copies = FakeCopies()
    results, is_interrupted = sweep_with(copies, [DTYPE, CONCURRENCY], answered)
    assert not is_interrupted
    assert copies.events == ["deploy fp32", "fp32 1", "fp32 2", "remove", "deploy bf16", "remove"]
    assert [it.problem for it in results] == [None, None, "no room", "no room"]


def test_without_deployments_the_named_model_is_measured() -> None:
    copies = FakeCopies()
    results, _ = sweep_with(copies, [CONCURRENCY], answered)
    assert copies.events == ["echo 1", "echo 2"]
    assert len(results) == 2


def test_a_cell_that_fails_does_not_end_the_sweep() -> None:
    def fail_first(cell: SweepCell) -> LoadResult:
        if cell.values["concurrency"] == 1:
            raise TerminalError("the first request failed")
        return answered(cell)

    results, _ = sweep_with(FakeCopies(), [CONCURRENCY], fail_first)
    assert [it.problem for it in results] == ["the first request failed", None]


def test_ctrl_c_ends_a_sweep_with_the_cells_that_were_measured() -> None:
    def interrupt_second(cell: SweepCell) -> LoadResult:
        result = answered(cell)
        return replace(result, is_interrupted=cell.values["concurrency"] == 2)

    copies = FakeCopies()
    results, is_interrupted = sweep_with(copies, [DTYPE, CONCURRENCY], interrupt_second)
    assert is_interrupted
    assert [it.cell.values["concurrency"] for it in results] == [1]
    assert copies.events == ["deploy fp32", "fp32 1", "fp32 2"], "the context removes the copy"
