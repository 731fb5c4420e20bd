"""Batches by OpenAI's unmodified client on a real platform: answers, bad input, kills."""

import json
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from tests.cases import case, cases
from tests.devices import DEVICES
from tests.integration.batch_rig import (
    BASE,
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    INSTANCE_TYPES,
    MODELS,
    OUTSIDE,
    VECTORS,
    Batches,
    Json,
    greedy,
    request,
    serving_llms,
    written,
)
from tests.integration.drill import ENDPOINT, ROLE, copies_of
from tests.integration.platform import until
from tests.integration.test_drills import agent_pid
from tests.selection import first_alone

from hostelry.base.proc import open_files, processes

pytestmark = pytest.mark.integration
OTHER_ACCOUNT = "999999999999"
LONG = 192  # tokens, so that a batch is still under way when it is looked at


@pytest.fixture(scope="module", params=DEVICES)
def batches(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Batches]:
    with serving_llms(tmp_path_factory.mktemp("llms"), request.param) as found:
        yield found


def test_the_base_has_opened_an_accelerator_where_its_instance_has_one(batches: Batches) -> None:
    (group,) = copies_of(batches.platform, BASE).values()
    ours = [each.pid for each in processes() if each.group == group]
    opened = [os.path.realpath(file) for pid in ours for file in open_files(pid)]
    assert opened
    is_open = any(path.startswith("/dev/nvidia") for path in opened)
    assert is_open == (batches.device == "cuda"), opened


def online(batches: Batches, url: str, body: Json) -> tuple[int, Json]:
    """Status and answer of the same request, sent by itself."""
    given = batches.platform.env()
    headers = {"Authorization": f"Bearer {given['OPENAI_API_KEY']}"}
    where = f"{given['OPENAI_BASE_URL']}{url.removeprefix('/v1')}"
    answer = httpx.post(where, json=body, headers=headers, timeout=60, trust_env=False)
    return answer.status_code, answer.json()


def answer_in(result: Json) -> Any:
    """The content of an answer without ids and times."""
    if result.get("error"):
        return result["error"]
    if "data" in result:
        return result["model"], result["data"], result["usage"]
    if "output" in result:
        return result["model"], [it["content"][0]["text"] for it in result["output"]]
    return result["model"], result["choices"], result["usage"]


def long_lines(count: int) -> list[Json]:
    """Requests to the models in turn, with `LONG` tokens each."""
    return [
        request(f"r{number}", greedy(MODELS[number % len(MODELS)], f"number {number}", LONG))
        for number in range(count)
    ]


def chat_body(model: str, text: str) -> Json:
    messages = [{"role": "user", "content": text}]
    return {"model": model, "messages": messages, "max_tokens": 12, "temperature": 0}


def responses_body(model: str, text: str) -> Json:
    return {"model": model, "input": text, "max_output_tokens": 16, "temperature": 0}


@pytest.mark.parametrize(
    ("url", "make", "models"),
    first_alone([
        pytest.param(CHAT, chat_body, MODELS, id="chat"),
        pytest.param(EMBEDDINGS, lambda model, text: {"model": model, "input": [text, "the sea"]},
                     [VECTORS], id="embeddings"),
        pytest.param(COMPLETIONS, greedy, MODELS, id="completions"),
        pytest.param("/v1/responses", responses_body, MODELS, id="responses"),
    ], 2),
)  # fmt: skip
def test_a_batch_of_many_models_has_the_answers_of_the_same_requests_online(
    batches: Batches, url: str, make: Any, models: list[str]
) -> None:
    asked = {
        f"{model} {n}": make(model, f"the {'deep ' * n} sea") for n in range(4) for model in models
    }
    wrong = {"nobody": make("nobody", "x"), "no adapter": make(f"{models[0]}:nobody", "x")}
    wrong["refused"] = make(VECTORS if BASE in models else BASE, "x")
    lines = [request(id, it, url) for id, it in {**asked, **wrong}.items()]
    made = batches.client.batches.create(
        input_file_id=batches.upload(written(lines)),
        endpoint=url,  # type: ignore[arg-type]
        completion_window="24h",
        metadata={"run": "nightly"},
    )
    assert made.status == "validating"
    ended = batches.ended(made.id)
    assert ended.status == "completed", ended
    assert ended.metadata == {"run": "nightly"}
    assert ended.request_counts is not None
    counts = ended.request_counts
    assert (counts.total, counts.completed, counts.failed) == (len(lines), len(asked), len(wrong))
    output, errors = batches.results(ended.output_file_id), batches.results(ended.error_file_id)
    assert set(output) == set(asked)
    assert set(errors) == set(wrong)
    assert ended.usage is not None
    used = [it["response"]["body"]["usage"]["total_tokens"] for it in output.values()]
    assert ended.usage.total_tokens == sum(used)
    for id, given in {**asked, **wrong}.items():
        result = {**output, **errors}[id]
        response, (status, body) = result["response"], online(batches, url, given)
        assert (response["status_code"], result["error"]) == (status, None)
        assert answer_in(response["body"]) == answer_in(body), id
    assert errors["nobody"]["response"]["body"]["error"]["code"] == "model_not_found"
    stored = batches.client.files.retrieve(str(ended.output_file_id))
    assert (stored.purpose, stored.status) == ("batch_output", "processed")
    assert stored.filename == f"{ended.id}_output.jsonl"
    assert stored.bytes == len(batches.client.files.content(stored.id).content)


GOOD = request("a", greedy(BASE, "hi"))


@cases(
    "content, faults",
    case("an empty file", b"", [("empty_file", None)]),
    case("empty lines alone", b"\n \n", [("empty_file", None)]),
    case("no JSON lines at all", b"\x89PNG\r\n\x1a\n\x00\xff",
        [("invalid_json_line", 1), ("invalid_json_line", 2), ("invalid_json_line", 3)]),
    case("a line that is cut off", written([GOOD])[:-9] + b"\n", [("invalid_json_line", 1)]),
    case("a body without a model, a custom_id twice", written([GOOD, request("b", {}), GOOD]),
        [("invalid_request", 2), ("duplicate_custom_id", 3)]),
    case("another url", written([request("b", greedy(BASE, "x"), CHAT)]), [("url_mismatch", 1)]),
    case("another method", written([request("b", greedy(BASE, "x"), method="GET")]),
        [("invalid_method", 1)]),
    case("a stream", written([GOOD, request("b", {**greedy(BASE, "x"), "stream": True})]),
        [("invalid_request", 2)]),
    case("no body", written([{"custom_id": "b", "method": "POST", "url": COMPLETIONS}]),
        [("invalid_request", 1)]),
    case("a line larger than a request may be",
        written([GOOD, request("b", greedy(BASE, "x" * (26 * 1024 * 1024)))]),
        [("invalid_json_line", 2)]),
    case("many bad lines", b"[]\n" * 150,
        [*[("invalid_json_line", it + 1) for it in range(100)], ("more_errors", None)]),
)  # fmt: skip
def test_a_file_that_is_no_list_of_requests_fails_with_its_lines(
    batches: Batches, content: bytes, faults: list[tuple[str, int | None]]
) -> None:
    ended = batches.ended(batches.create(content))
    assert ended.status == "failed"
    assert ended.errors is not None
    assert ended.errors.data is not None
    assert [(it.code, it.line) for it in ended.errors.data] == faults
    assert all(it.message for it in ended.errors.data)
    assert ended.output_file_id is None
    assert ended.error_file_id is None


def test_calls_that_cannot_be_met_are_refused_with_their_reason(batches: Batches) -> None:
    client, file = batches.client, batches.upload(written([GOOD]))
    internal = {
        "X-Hostelry-Key": batches.platform.credentials.internal_key,
        "X-Hostelry-Account": OTHER_ACCOUNT,
        "X-Hostelry-Region": "us-west-2",
    }
    theirs = httpx.post(
        f"{batches.platform.config.jobs_url}/v1/files",
        headers=internal,
        data={"purpose": "batch"},
        files={"file": ("theirs.jsonl", written([GOOD]))},
    ).json()["id"]
    with pytest.raises(openai.BadRequestError, match="is not one of"):
        client.files.create(file=("f.jsonl", b"{}"), purpose="fine-tune")
    for unknown in ("file-unknown", theirs):
        for call in (client.files.retrieve, client.files.content, client.files.delete):
            with pytest.raises(openai.NotFoundError, match="No such File object"):
                call(unknown)
        with pytest.raises(openai.BadRequestError, match="No such File object") as refused:
            created(batches, input_file_id=unknown)
        assert refused.value.param == "input_file_id"
    assert theirs not in [it.id for it in client.files.list()]
    for given, message in (
        ({"endpoint": "/v1/moderations"}, "Supported values are: /v1/chat"),
        ({"completion_window": "1h"}, "Supported values are: '24h'"),
        ({"metadata": {"k": "v" * 513}}, "512"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 60}}, "3600"),
    ):
        with pytest.raises(openai.BadRequestError, match=message):
            created(batches, input_file_id=file, **given)
    for method in ("retrieve", "cancel"):
        with pytest.raises(openai.NotFoundError, match="No batch found"):
            getattr(client.batches, method)("batch_unknown")
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="guess").files.list()


def test_a_file_whose_bytes_are_gone_is_named(batches: Batches) -> None:
    lost = batches.upload(written([GOOD]))
    (batches.platform.home.files / lost).unlink()
    with pytest.raises(openai.NotFoundError, match="No such File object"):
        batches.client.files.content(lost)
    ended = batches.ended(created(batches, input_file_id=lost).id)
    assert ended.status == "failed"
    assert ended.errors is not None
    assert ended.errors.data is not None
    assert [it.code for it in ended.errors.data] == ["input_file_missing"]


def created(batches: Batches, **given: Any) -> openai.types.Batch:
    asked: Any = {"endpoint": COMPLETIONS, "completion_window": "24h", **given}
    made: openai.types.Batch = batches.client.batches.create(**asked)
    return made


def test_files_and_batches_are_listed_page_by_page(batches: Batches) -> None:
    client = batches.client
    made = [batches.create([GOOD]) for _ in range(5)]
    ended = [batches.ended(it) for it in made]
    pages = list(client.batches.list(limit=2).iter_pages())
    listed = [it.id for page in pages for it in page.data]
    assert listed[:5] == made[::-1]
    assert len(set(listed)) == len(listed)
    assert [len(it.data) for it in pages[:-1]] == [2] * (len(pages) - 1)
    outputs = {it.output_file_id for it in ended}
    newest = [it.id for it in client.files.list(purpose="batch_output", limit=3)]
    assert set(newest[:5]) == outputs
    oldest = [it.id for it in client.files.list(purpose="batch_output", limit=3, order="asc")]
    assert oldest == newest[::-1]
    assert len(list(client.files.list(purpose="batch", limit=1000))) >= 5
    assert list(client.files.list(after="file-unknown")) == []
    for limit in ("101", "000000001" + "0" * 19, "9" * 5_000):
        with pytest.raises(openai.BadRequestError, match="limit must be from 1 to 100"):
            client.batches.list(extra_query={"limit": limit})


def test_files_expire_when_it_was_asked_for(batches: Batches) -> None:
    client = batches.client
    file = client.files.create(
        file=("soon.jsonl", written([GOOD])),
        purpose="batch",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )
    assert file.expires_at == file.created_at + 3600
    kept = {"anchor": "created_at", "seconds": 7200}
    made = created(batches, input_file_id=file.id, output_expires_after=kept)
    output = client.files.retrieve(str(batches.ended(made.id).output_file_id))
    assert output.expires_at == output.created_at + 7200


def test_an_ai_benchmark_measures_a_base_and_an_adapter(batches: Batches) -> None:
    sagemaker, s3 = (batches.platform.boto3(it) for it in ("sagemaker", "s3"))
    parameters = {
        "prompt_input_tokens_mean": 60,
        "output_tokens_mean": 8,
        "concurrency": 2,
        "request_count": 12,
        "warmup_request_count": 2,
    }
    spec = json.dumps({"benchmark": {"type": "aiperf"}, "parameters": parameters})
    sagemaker.create_ai_workload_config(
        AIWorkloadConfigName="short", AIWorkloadConfigs={"WorkloadSpec": {"Inline": spec}}
    )
    targets = [{"Identifier": it} for it in (BASE, OUTSIDE)]
    sagemaker.create_ai_benchmark_job(
        AIBenchmarkJobName="both",
        AIWorkloadConfigIdentifier="short",
        RoleArn=ROLE,
        BenchmarkTarget={"Endpoint": {"Identifier": ENDPOINT, "InferenceComponents": targets}},
        OutputConfig={"S3OutputLocation": "s3://models/benchmarks"},
    )

    def over() -> Any:
        job = sagemaker.describe_ai_benchmark_job(AIBenchmarkJobName="both")
        return job if job["AIBenchmarkJobStatus"] != "InProgress" else None

    job: Any = until(over, "the AI benchmark ends", 60.0)
    assert job["AIBenchmarkJobStatus"] == "Completed", job.get("FailureReason")
    written_to = s3.get_object(Bucket="models", Key="benchmarks/both/results.json")
    results = json.loads(written_to["Body"].read())
    assert (results["ok"], results["errors"]) == (12, {})
    assert results["target"] == f"{BASE}, {OUTSIDE}"
    assert 0 < results["tokens_per_request"] <= 8
    assert 45 <= results["prompt_tokens_per_request"] <= 75
    assert 0 < results["first_token_ms"]["p50"] < results["latency_ms"]["p99"]
    (log,) = job["OutputConfig"]["CloudWatchLogs"]
    group = log["LogGroupArn"].partition("log-group:")[2]

    logs = batches.platform.boto3("logs")

    def has_end() -> bool:
        try:
            found = logs.get_log_events(logGroupName=group, logStreamName=log["LogStreamName"])
        except logs.exceptions.ResourceNotFoundException:
            return False
        return "The job is done." in [it["message"] for it in found["events"]]

    until(has_end, "the log has the end of the job", 30.0)


def test_an_ai_recommendation_job_goes_on_after_a_kill_and_leaves_no_endpoint(
    batches: Batches,
) -> None:
    platform = batches.platform
    sagemaker, s3 = (platform.boto3(it) for it in ("sagemaker", "s3"))
    parameters = {
        "prompt_input_tokens_mean": 40,
        "output_tokens_mean": 6,
        "concurrency": 2,
        "benchmark_duration": 1,
    }
    spec = json.dumps({"benchmark": {"type": "aiperf"}, "parameters": parameters})
    sagemaker.create_ai_workload_config(
        AIWorkloadConfigName="users", AIWorkloadConfigs={"WorkloadSpec": {"Inline": spec}}
    )
    name = {"AIRecommendationJobName": "types"}
    sagemaker.create_ai_recommendation_job(
        **name,
        ModelSource={"S3": {"S3Uri": f"s3://models/{BASE}.tar.gz"}},
        OutputConfig={"S3OutputLocation": "s3://models/types"},
        AIWorkloadConfigIdentifier="users",
        PerformanceTarget={"Constraints": [{"Metric": "ttft-ms"}]},
        RoleArn=ROLE,
        ComputeSpec={"InstanceTypes": [INSTANCE_TYPES[batches.device]]},
    )

    logs, group = platform.boto3("logs"), "/aws/sagemaker/AIRecommendationJobs"

    def has_prompts() -> bool:
        try:
            found = logs.get_log_events(logGroupName=group, logStreamName="types/execution")
        except logs.exceptions.ResourceNotFoundException:
            return False
        return any("prompts of " in it["message"] for it in found["events"])

    until(has_prompts, "the search has begun", 30.0)
    shown = platform.cli("status").stdout
    assert "AI recommendation job types  IN_PROGRESS" in shown
    platform.back("jobs", platform.kill("jobs"))

    def over() -> Any:
        job = sagemaker.describe_ai_recommendation_job(**name)
        return job if job["AIRecommendationJobStatus"] != "InProgress" else None

    job: Any = until(over, "the AI recommendation job ends", 60.0)
    assert job["AIRecommendationJobStatus"] == "Completed", job.get("FailureReason")
    (found,) = job["Recommendations"]
    assert found["DeploymentConfiguration"]["InstanceType"] == INSTANCE_TYPES[batches.device]
    rows = {(it["Metric"], it.get("Stat")): it for it in found["ExpectedPerformance"]}
    values = {name: float(it["Value"]) for name, it in rows.items()}
    assert values["concurrency", None] <= 2
    assert 0 < values["ttft-ms", "p50"] < values["request-latency-ms", "max"]
    written_to = s3.get_object(Bucket="models", Key="types/types/1/results.json")
    assert json.loads(written_to["Body"].read())["loads"]
    assert copies_of(platform, BASE), "the other endpoint stays"
    # Refused while an endpoint of the job exists.
    sagemaker.delete_ai_recommendation_job(**name)


def test_a_batch_that_is_cancelled_keeps_what_was_answered(batches: Batches) -> None:
    client = batches.client
    id = batches.create(long_lines(2000))
    until(lambda: batches.has_ended_more_than(id, 20), "some are answered")
    input_file = client.batches.retrieve(id).input_file_id
    with pytest.raises(openai.BadRequestError, match=f"is read by {id}"):
        client.files.delete(input_file)
    shown = batches.platform.jobs("show", id)
    assert re.search(r"left +\d+", shown), shown
    assert "of 2,000" in batches.platform.jobs("list", "--state", "running")
    status, _ = online(batches, COMPLETIONS, greedy(BASE, "beside a batch"))
    assert (status, client.batches.retrieve(id).status) == (200, "in_progress")
    assert client.batches.cancel(id).status == "cancelling"
    ended = batches.ended(id, 20)
    assert ended.status == "cancelled"
    assert ended.request_counts is not None
    counts, output = ended.request_counts, batches.results(ended.output_file_id)
    assert 20 < counts.completed == len(output) < counts.total == 2000
    with pytest.raises(openai.BadRequestError, match="status 'cancelled'"):
        client.batches.cancel(id)
    refused = batches.platform.job_command("cancel", id, code=1)
    assert "is cancelled, not cancelling" in refused.stderr
    assert client.files.delete(input_file).deleted
    assert client.files.delete(str(ended.output_file_id)).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.content(str(ended.output_file_id))


def test_a_command_cancels_a_batch_and_shows_what_is_wrong_with_another(batches: Batches) -> None:
    id = batches.create(long_lines(2000))
    until(lambda: batches.has_ended_more_than(id, 20), "some are answered")
    assert "is being cancelled" in batches.platform.jobs("cancel", id)
    assert batches.ended(id, 20).status == "cancelled"
    wrong = batches.ended(batches.create(b"{}"))
    assert re.search(r"failed .* line 1: custom_id is missing", batches.platform.jobs("list"))
    assert "custom_id is missing" in batches.platform.jobs("show", wrong.id)
    for act in ("retry", "drop"):
        unknown = batches.platform.job_command(act, wrong.id, code=1)
        assert "no asynchronous request" in unknown.stderr


@pytest.mark.slow
@pytest.mark.thorough
def test_each_request_is_answered_once_though_processes_are_killed(batches: Batches) -> None:
    platform, client, lines = batches.platform, batches.client, long_lines(1500)
    id = batches.create(lines)
    until(lambda: batches.has_ended_more_than(id, 50), "some are answered")
    assert client.batches.retrieve(id).status == "in_progress"
    platform.back("jobs", platform.kill("jobs"))
    until(lambda: batches.has_ended_more_than(id, 300), "the successor goes on", 60)
    os.kill(agent_pid(platform), signal.SIGKILL)
    (pid,) = copies_of(platform, BASE).values()
    assert client.batches.retrieve(id).status == "in_progress"
    os.kill(pid, signal.SIGKILL)
    shown = until(lambda: lacking(platform.jobs("show", id)), "the cause of the wait")
    assert re.search(r"no copy serves model \S+ now: \d+ of its requests wait", shown), shown
    until(lambda: batches.has_ended_more_than(id, 600), "a new copy goes on", 60)
    assert client.batches.retrieve(id).status == "in_progress"
    platform.back("control", platform.kill("control"))
    ended = batches.ended(id, 120)
    assert ended.status == "completed", ended
    output, errors = batches.results(ended.output_file_id), batches.results(ended.error_file_id)
    assert errors == {}
    assert set(output) == {it["custom_id"] for it in lines}
    assert ended.usage is not None
    assert ended.usage.output_tokens == LONG * len(lines)
    for line in lines[::300]:
        body = output[line["custom_id"]]["response"]["body"]
        assert answer_in(body) == answer_in(online(batches, COMPLETIONS, line["body"])[1])


def lacking(shown: str) -> str:
    """The output of `hostelry jobs show`, if it names the missing model."""
    return shown if "no copy serves" in shown else ""
