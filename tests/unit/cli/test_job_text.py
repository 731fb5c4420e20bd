"""Asynchronous requests and their queues as text."""

from typing import Any

import pytest

from hostelry.cli.job_text import NOTHING, backlog_line, list_lines, show_lines

SCOPE = {"account": "123456789012", "region": "us-west-2"}
ROW: dict[str, Any] = {
    "id": "i1",
    "inference_id": "inference-1",
    "endpoint_name": "scores",
    "state": "failed",
    "attempt": 3,
    "accepted_at": 1_700_000_000.0,
    "expires_at": 1_700_000_060.0,
    "finished_at": None,
    "reason": "the model\nanswered 500 " + "x" * 100,
    "input_uri": None,
    "body_bytes": 17,
    "output_uri": "s3://b/o.out",
    "failure_uri": "s3://b/f.out",
}
QUEUE = {"scope": SCOPE, "endpoint_name": "scores", "waiting": 5, "running": 1}


def test_a_list_has_a_line_a_request_and_one_a_queue() -> None:
    count = {"scope": SCOPE, "endpoint_name": "scores", "number": 12}
    head, line, queue = list_lines([ROW], [QUEUE], [count])
    assert head.split() == ["INFERENCE", "ID", "ENDPOINT", "STATE", "ATTEMPT", "ACCEPTED", "REASON"]
    assert line.startswith("inference-1")
    assert line.endswith("x...")
    assert queue == ("scores: 5 waiting, 1 running; 12 ended in the last minute, so 30 s are left")


@pytest.mark.parametrize("number", [0], ids=["no request ended"])
def test_without_a_rate_there_is_no_eta(number: int) -> None:
    assert backlog_line(QUEUE, number).endswith("none ended in the last minute")


def test_without_requests_it_reports_that() -> None:
    assert list_lines([], [], []) == [NOTHING]


def test_what_all_wait_for_is_shown() -> None:
    assert list_lines([], [], [], "the disk is full")[-1].endswith("wait: the disk is full")
    assert "the disk is full" in "\n".join(show_lines({**ROW, "trouble": "the disk is full"}))
    assert show_lines({**ROW, "trouble": None}) == show_lines(ROW)


def test_one_request_is_shown_whole() -> None:
    text = "\n".join(show_lines(ROW))
    assert "17 bytes with the request" in text
    assert "x" * 100 in text, "its reason is not cut"
    assert "s3://b/f.out" in text
