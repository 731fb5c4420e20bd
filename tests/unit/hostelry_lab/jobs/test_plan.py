import json

import pytest

from hostelry.containers.drill.__main__ import digest_line
from hostelry_lab.jobs.plan import (
    FULL,
    LARGE_BYTES,
    SHORT,
    JobsSizes,
    planned_files,
    planned_kills,
    planned_requests,
)

LEAST = JobsSizes(num_requests=10, num_records=100, num_kills=3, seed=4)
KINDS = ("gateway", "control", "jobs")
SIZES = [
    pytest.param(FULL, id="the full sizes"),
    pytest.param(SHORT, id="the short form"),
    pytest.param(LEAST, id="the smallest sizes"),
]


@pytest.mark.parametrize("sizes", SIZES)
def test_one_request_of_a_thousand_is_refused_and_another_is_large(sizes: JobsSizes) -> None:
    requests = planned_requests(sizes)
    each = max(1, sizes.num_requests // 1000)
    assert len({it.name for it in requests}) == sizes.num_requests
    assert sum(it.is_refused for it in requests) == each
    large = [it for it in requests if it.filler_bytes == LARGE_BYTES]
    assert len(large) == each
    assert all(it.by_location and not it.is_refused for it in large)
    inline = [it for it in requests if not it.by_location]
    assert 0 < len(inline) < sizes.num_requests
    assert all(len(it.body) <= 128_000 for it in inline)


@pytest.mark.parametrize("sizes", SIZES)
def test_the_records_are_in_files_of_which_some_have_one_that_is_refused(sizes: JobsSizes) -> None:
    files = planned_files(sizes)
    assert sum(it.num_records for it in files) == sizes.num_records
    assert len({it.num_records for it in files}) > 1
    refused = [it for it in files if it.refused is not None]
    assert len(refused) == max(1, len(files) // 20)
    assert all(0 <= (it.refused or 0) < it.num_records for it in refused)


def test_the_model_gives_the_answers_that_are_planned() -> None:
    for request in planned_requests(LEAST):
        asked = json.loads(request.body)
        given = asked["refuse"].encode() if request.is_refused else digest_line(asked["digest"])
        assert given == request.answer
    for file in planned_files(LEAST):
        for number, (body, answer) in enumerate(zip(file.inputs(), file.answers(), strict=True)):
            asked = json.loads(body)
            if number == file.refused:
                assert asked["refuse"].encode() == file.refusal
            else:
                assert digest_line(asked["digest"]) == answer


def test_a_seed_gives_the_same_plan_again_and_another_seed_another_one() -> None:
    other = JobsSizes(num_requests=10, num_records=100, num_kills=3, seed=5)
    for plan in (planned_requests, planned_files, lambda it: planned_kills(it, KINDS)):
        assert plan(LEAST) == plan(LEAST)
        assert plan(LEAST) != plan(other)


def test_every_kind_is_killed_equally_often_while_the_work_is_done() -> None:
    kills = planned_kills(SHORT, KINDS[:2])
    assert [sum(it.kind == kind for it in kills) for kind in KINDS[:2]] == [7, 7]
    shares = [it.at_share for it in kills]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < 1
