"""A graph's server against a real gateway and an echo model: streams, deaths, large bodies."""

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from benchmarks.graph_stack import GraphStack, copys_keys, running_graphs
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError
from msgspec import convert
from tests.cases import case, cases
from tests.integration.platform import client_session, until

from hostelry.base.clock import SystemClock
from hostelry.containers.graph.targets import CallKeys, GatewayTargets
from hostelry.graph.check import build_plan
from hostelry.graph.step_report import PROOF_EXISTS, PROOF_HEADER

CALL = "{call: {endpoint: echo}, on_error: %s}"
HOPS = "".join(
    f"  h{number}: {{call: {{endpoint: echo}}, input: {f'h{number - 1}' if number else 'input'}}}\n"
    for number in range(5)
)
BRANCHES = tuple(f"s{number}" for number in range(8))
DOCUMENTS = {
    "chain": f"output: h4\nsteps:\n{HOPS}",
    "one": "output: a\ndeadline_s: 2\nsteps: {a: {call: {endpoint: echo}}}",
    "both": "output: all\nsteps:\n  all: {scatter: [a, b]}\n"
    f"  a: {CALL % 'drop'}\n  b: {{map: input.n}}\n",
    "wide": f"output: all\nsteps:\n  all: {{scatter: {list(BRANCHES)}}}\n"
    + "".join(f"  {name}: {CALL % 'drop'}\n" for name in BRANCHES),
    "mapped": "output: a\nsteps: {a: {map: 'b.n'}, b: {call: {endpoint: echo}}}",
}
MIB = 1 << 20
pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def graphs() -> Iterator[GraphStack]:
    with running_graphs(DOCUMENTS) as running:
        yield running


def client(graphs: GraphStack, read_timeout: float = 60) -> Any:
    keys = graphs.stack.credentials
    return client_session().create_client(
        "sagemaker-runtime",
        endpoint_url=f"http://127.0.0.1:{graphs.stack.gateway_port}",
        aws_access_key_id=keys.access_key_id,
        aws_secret_access_key=keys.secret_access_key,
        region_name=keys.region,
        config=Config(retries={"total_max_attempts": 1}, read_timeout=read_timeout),
    )


def invoke(
    graphs: GraphStack, name: str, body: bytes, attributes: str = "", by: Any = None
) -> bytes:
    more = {"CustomAttributes": attributes} if attributes else {}
    answer = (by or client(graphs)).invoke_endpoint(
        EndpointName=name, ContentType="application/json", Body=body, **more
    )
    found: bytes = answer["Body"].read()
    return found


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) * 1024


def test_a_body_comes_back_as_it_went_through_five_hops(graphs: GraphStack) -> None:
    assert invoke(graphs, "chain", b'{"n":  1.0}') == b'{"n":  1.0}'


@pytest.mark.thorough
def test_memory_is_flat_where_a_megabyte_goes_through_five_hops(graphs: GraphStack) -> None:
    body = json.dumps({"text": "x" * MIB}).encode()
    pids, by = (graphs.pids["chain"], *graphs.stack.gateway_pids), client(graphs)
    for _ in range(20):
        assert len(invoke(graphs, "chain", body, by=by)) == len(body)
    before = [resident_bytes(pid) for pid in pids]
    for _ in range(100):
        invoke(graphs, "chain", body, by=by)
    grown = [resident_bytes(pid) - was for pid, was in zip(pids, before, strict=True)]
    assert max(grown) < 32 * MIB, f"500 MiB have passed; grown by {grown}"


@cases(
    "attributes, status, message",
    case("a refusal", "status=400", 424,
        "step a: endpoint echo answered 424: Received client error"),
    case("a busy target", "status=503", 503, "step a: endpoint echo answered"),
    case("no answer", "close=start", 424, "step a: endpoint echo answered 424"),
    case("half an answer", "close=middle", 424, "step a: endpoint echo"),
    case("nonsense", "chunks=2", 424, "step a: endpoint echo answered application/jsonlines;"),
    case("a target that hangs", "sleep_ms=5000", 504,
        "step a: the call's deadline of 2 s has passed"),
)  # fmt: skip
def test_a_fault_of_a_target_names_step_and_target(
    graphs: GraphStack, attributes: str, status: int, message: str
) -> None:
    with pytest.raises(ClientError) as caught:
        invoke(graphs, "one", b"{}", attributes)
    found = caught.value.response
    assert message in found["OriginalMessage"], found
    assert found["OriginalStatusCode"] == status
    assert invoke(graphs, "one", b"{}") == b"{}"


def test_a_trace_has_the_call_that_was_under_way_at_the_deadline(graphs: GraphStack) -> None:
    with pytest.raises(ClientError) as caught:
        invoke(graphs, "one", b"{}", "sleep_ms=5000")
    request_id = caught.value.response["ResponseMetadata"]["RequestId"]
    url = f"http://127.0.0.1:{graphs.stack.gateway_port}/traces/{request_id}"
    key = {"X-Hostelry-Key": graphs.stack.credentials.internal_key}

    def traced() -> dict[str, Any] | None:
        with urlopen(Request(url, headers=key)) as answer:
            call = json.loads(answer.read())["call"]
        (attempt,) = [it for it in call["spans"] if it["name"] == "attempt"]
        (step,) = attempt["spans"]
        assert (step["name"], step["outcome"]) == ("a", "under way")
        assert 1900 < step["ms"] <= attempt["ms"] <= call["ms"]
        made: dict[str, Any] | None = step.get("call")
        return made

    made = until(traced, "its call has ended, too")
    assert (made["endpoint"], made["status"], made["parent_id"]) == ("echo", 499, request_id)


def test_a_dropped_branch_leaves_the_others(graphs: GraphStack) -> None:
    assert json.loads(invoke(graphs, "both", b'{"n": 7}', "close=start")) == [7]


def count(graphs: GraphStack, what: str) -> int:
    """A count of the echo model: requests `served` or `asleep`, or clients that `cancelled`."""
    with urlopen(f"http://127.0.0.1:{graphs.echo.port}/{what}") as answer:
        return int(answer.read())


def test_a_graph_that_is_killed_in_a_scatter_leaves_no_call_behind(graphs: GraphStack) -> None:
    cancelled = count(graphs, "cancelled")
    with ThreadPoolExecutor() as pool:
        call = pool.submit(invoke, graphs, "wide", b"{}", "sleep_ms=50000")
        until(lambda: count(graphs, "asleep") == 8, "all branches have arrived")
        os.kill(graphs.pids["wide"], signal.SIGKILL)
        with pytest.raises(ClientError, match="ModelError"):
            call.result(40)
    until(lambda: count(graphs, "asleep") == 0, "no branch is left")
    assert count(graphs, "cancelled") == cancelled + 8


def test_a_target_that_is_killed_in_a_scatter_is_a_dropped_branch() -> None:
    with running_graphs({"both": DOCUMENTS["both"]}) as own, ThreadPoolExecutor() as pool:
        call = pool.submit(invoke, own, "both", b'{"n": 7}', "sleep_ms=50000")
        until(lambda: count(own, "asleep") == 1, "the branch has arrived")
        os.kill(own.echo.pid, signal.SIGKILL)
        assert json.loads(call.result(40)) == [7]


def test_a_client_that_leaves_ends_the_calls_of_its_graph(graphs: GraphStack) -> None:
    before = count(graphs, "cancelled")
    with pytest.raises(ReadTimeoutError):
        client(graphs, read_timeout=1).invoke_endpoint(
            EndpointName="both",
            ContentType="application/json",
            Body=b"{}",
            CustomAttributes="sleep_ms=20000",
        )
    until(lambda: count(graphs, "cancelled") > before, "the echo's caller is gone")


def streamed(graphs: GraphStack, name: str, attributes: str) -> list[bytes]:
    answer = client(graphs).invoke_endpoint_with_response_stream(
        EndpointName=name, ContentType="application/json", Body=b'{"n": 1}',
        **({"CustomAttributes": attributes} if attributes else {}),
    )  # fmt: skip
    return [part["PayloadPart"]["Bytes"] for part in answer["Body"]]


def test_the_last_steps_stream_is_passed_on_as_it_comes(graphs: GraphStack) -> None:
    parts = streamed(graphs, "one", "chunks=5;interval_ms=100")
    assert [len(data) for data in parts] == [16] * 5


def test_a_graph_whose_last_step_is_no_call_answers_whole(graphs: GraphStack) -> None:
    assert b"".join(streamed(graphs, "mapped", "")) == b"1"


def test_targets_are_asked_for_without_a_request_to_a_model(graphs: GraphStack) -> None:
    document = (
        "output: all\nsteps:\n  all: {scatter: [a, b, c]}\n  a: {call: {endpoint: echo}}\n"
        "  b: {call: {endpoint: gone}}\n  c: {call: {endpoint: echo, variant: other}}\n"
    )
    url = f"http://127.0.0.1:{graphs.stack.gateway_port}"
    keys = convert(copys_keys(url, graphs.stack.credentials), CallKeys)

    async def asked() -> dict[str, str]:
        targets = GatewayTargets(SystemClock())
        targets.use(keys)
        try:
            return await targets.missing(build_plan(document))
        finally:
            targets.close()
            await asyncio.sleep(0)  # for the connections' ends

    before, missing = count(graphs, "served"), asyncio.run(asked())
    assert list(missing) == ["b", "c"]
    assert "Endpoint gone of account" in missing["b"]
    assert "other" in missing["c"]
    assert count(graphs, "served") == before + 1, "that of this question itself"

    mine = client(graphs)
    mine.meta.events.register(
        "before-sign.*.*",
        lambda request, **_: request.headers.add_header(PROOF_HEADER, PROOF_EXISTS),
    )
    answer = mine.invoke_endpoint(EndpointName="echo", ContentType="text/plain", Body=b"mine")
    assert answer["Body"].read() == b"mine", "other keys ask nothing by that header"


def test_connections_are_reused(graphs: GraphStack) -> None:
    def ports() -> set[int]:
        found = set()
        open_files = Path(f"/proc/{graphs.pids['chain']}/fd").iterdir()
        inodes = {os.readlink(it) for it in open_files if it.is_symlink()}
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            remote = int(fields[2].rpartition(":")[2], 16)
            if remote == graphs.stack.gateway_port and f"socket:[{fields[9]}]" in inodes:
                found.add(int(fields[1].rpartition(":")[2], 16))
        return found

    invoke(graphs, "chain", b"{}")
    before = ports()
    for _ in range(5):
        invoke(graphs, "chain", b"{}")
    assert before & ports() == before
    assert len(before) == 1
