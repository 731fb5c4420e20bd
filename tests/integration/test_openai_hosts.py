"""OpenAI's client at the gateways of two hosts, each with a process for jobs, over one database."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from benchmarks.stack import stopped_after, wait_for_gateway
from tests.integration.async_rig import Handler, Model
from tests.integration.batch_rig import ENDED, greedy, request, written
from tests.integration.gateway_rig import (
    WAIT_S,
    FakeControl,
    GatewayRig,
    component,
    components_endpoint,
    snapshot_of,
    until,
)
from tests.postgres_rig import postgres_database

from hostelry.base.ports import free_port
from hostelry.domain.routes import CopyRoute
from hostelry.home.home import save_config, save_credentials
from hostelry.store.database import open_database

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


class GatedModel(Model):
    """A copy that answers. Prompts that begin with "late" wait for `gate`. Counts prompts."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()
        self.gate = threading.Event()

    def serve(self, call: Handler) -> None:
        body = json.loads(call.rfile.read(int(call.headers["Content-Length"])))
        self.asked[body["prompt"]] += 1
        if body["prompt"].startswith("late"):
            self.gate.wait(WAIT_S)
        answer = {"choices": [{"text": body["prompt"]}], "usage": USAGE}
        with contextlib.suppress(OSError):
            call.answer(200, json.dumps(answer).encode())

    def stop(self) -> None:
        self.gate.set()
        super().stop()


class OneHost:
    """A gateway, a process for jobs, and OpenAI's client of the gateway."""

    def __init__(self, root: Path, store_url: str, first: "OneHost | None") -> None:
        root.mkdir()
        self.rig = GatewayRig(root, store_url=store_url, jobs_port=free_port())
        if first is not None:
            control_port = first.rig.config.control_port
            self.rig.config = replace(self.rig.config, control_port=control_port)
            self.rig.credentials = first.rig.credentials
            save_config(self.rig.home, self.rig.config)
            save_credentials(self.rig.home, self.rig.credentials)
        self._jobs_log = root / "jobs.log"
        self.jobs: subprocess.Popen[bytes] | None = None
        self.client = openai.OpenAI(
            api_key=self.rig.credentials.openai_api_key,
            base_url=f"{self.rig.config.gateway_url}/v1",
            max_retries=0,
            timeout=WAIT_S,
        )

    def start(self) -> None:
        self.start_gateway()
        self.start_jobs()

    def start_gateway(self) -> None:
        try:
            self.rig.start()
        except RuntimeError:  # on a busy machine it takes longer
            assert self.rig.process is not None
            wait_for_gateway(self.rig.config.gateway_url, self.rig.process)

    def start_jobs(self) -> None:
        words = [sys.executable, "-m", "hostelry.services.jobs", "--home", str(self.rig.home.root)]
        with self._jobs_log.open("ab") as log:
            self.jobs = subprocess.Popen(words, stderr=log)
        key = {"X-Hostelry-Key": self.rig.credentials.internal_key}

        def answers() -> bool:
            assert self.jobs is not None
            assert self.jobs.poll() is None, self._jobs_log.read_text()
            with contextlib.suppress(httpx.TransportError):
                url = f"{self.rig.config.jobs_url}/internal/health"
                return httpx.get(url, headers=key, timeout=5).status_code == 200
            return False

        until(answers, "the process for jobs answers")

    def end_jobs(self, number: int) -> None:
        assert self.jobs is not None
        self.jobs.send_signal(number)
        self.jobs.wait(WAIT_S)

    def created(self, *prompts: str) -> openai.types.Batch:
        """A new batch of these prompts."""
        lines = [request(str(n), greedy("base", it)) for n, it in enumerate(prompts, 1)]
        file = self.client.files.create(file=("in.jsonl", written(lines)), purpose="batch")
        return self.client.batches.create(
            input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"
        )

    def batch(self, id: str) -> openai.types.Batch:
        return self.client.batches.retrieve(id)

    def completed(self, id: str) -> int:
        counts = self.batch(id).request_counts
        return 0 if counts is None else counts.completed

    def ended(self, id: str) -> openai.types.Batch:
        until(lambda: self.batch(id).status in ENDED, f"{id} ends")
        return self.batch(id)

    def answers(self, file_id: str | None) -> list[str]:
        """The custom_ids of an output file, in order."""
        assert file_id is not None
        lines = self.client.files.content(file_id).text.splitlines()
        return sorted((json.loads(it)["custom_id"] for it in lines), key=int)

    def stop(self) -> None:
        self.client.close()
        for process in (self.jobs, self.rig.process):
            if process is not None:
                with stopped_after(process):
                    pass


class Hosts:
    """Two hosts of one platform, whose control says where the model is and nothing else."""

    def __init__(self, root: Path, store_url: str, stack: contextlib.ExitStack) -> None:
        self.model = GatedModel()
        stack.callback(self.model.stop)
        self.here = OneHost(root / "here", store_url, None)
        self.there = OneHost(root / "there", store_url, self.here)
        control = FakeControl(self.here.rig)
        stack.callback(control.stop)
        copy = CopyRoute(id="c-1", address=self.model.address)
        found = snapshot_of("1", components_endpoint("llms", component("base", (copy,))))
        control.publish(found)
        for host in (self.here, self.there):
            host.rig.publish(found)
        for host in (self.here, self.there):
            stack.callback(host.stop)
            host.start()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(postgres_database())
        yield Hosts(tmp_path_factory.mktemp("openai-hosts"), url, stack)


def test_a_file_and_a_batch_of_one_host_are_those_of_both(hosts: Hosts) -> None:
    here, there = hosts.here.client, hosts.there.client
    content = written([request("1", greedy("base", "x" * 900_000)), request("2", {})])
    file = here.files.create(file=("name.jsonl", content), purpose="batch")
    assert there.files.retrieve(file.id) == file
    assert [it.id for it in there.files.list()] == [file.id]
    assert there.files.content(file.id).content == content
    theirs = {
        "X-Hostelry-Key": hosts.here.rig.credentials.internal_key,
        "X-Hostelry-Account": "999999999999",
        "X-Hostelry-Region": "us-west-2",
    }
    for host in (hosts.here, hosts.there):
        url = f"{host.rig.config.jobs_url}/v1/files/{file.id}/content"
        assert httpx.get(url, headers=theirs).status_code == 404
    hosts.model.gate.clear()
    batch = hosts.here.created("one", "late")
    until(lambda: hosts.there.completed(batch.id) == 1, "the other host shows how far it is")
    assert [it.id for it in there.batches.list()] == [batch.id]
    with pytest.raises(openai.BadRequestError, match=f"is read by {batch.id}"):
        there.files.delete(batch.input_file_id)
    assert there.batches.cancel(batch.id).status == "cancelling"
    hosts.model.gate.set()
    ended = hosts.here.ended(batch.id)
    assert ended.status == "cancelled"
    assert set(hosts.there.answers(ended.output_file_id)) >= {"1"}
    assert there.files.delete(batch.input_file_id).deleted
    assert there.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        here.files.content(file.id)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda it: it.name)
def test_a_batch_goes_on_when_its_process_ends_and_answers_each_line_once(
    hosts: Hosts, how: signal.Signals
) -> None:
    hosts.model.gate.clear()
    prompts = [f"{how.name} {number}" for number in range(40)]
    late = f"late {how.name}"
    batch = hosts.here.created(*prompts, late)
    until(lambda: hosts.there.completed(batch.id) == len(prompts), "all but one are answered")
    hosts.here.end_jobs(how)
    assert hosts.there.batch(batch.id).status == "in_progress"
    hosts.model.gate.set()
    if how is signal.SIGKILL:  # or the other host waits for the end of a lease
        hosts.here.start_jobs()
    ended = hosts.there.ended(batch.id)
    assert ended.status == "completed", ended
    whole = [str(number) for number in range(1, len(prompts) + 2)]
    assert hosts.there.answers(ended.output_file_id) == whole
    assert {hosts.model.asked[it] for it in prompts} == {1}
    assert ended.usage is not None
    assert ended.usage.output_tokens == 2 * len(whole)
    if how is signal.SIGTERM:
        with pytest.raises(openai.InternalServerError, match="does not answer"):
            hosts.here.batch(batch.id)
        hosts.here.start_jobs()
    assert hosts.here.answers(ended.output_file_id) == whole


@pytest.mark.parametrize("victim", ["the gateway", "the process for jobs"])
def test_an_upload_that_breaks_off_is_no_file(hosts: Hosts, victim: str) -> None:
    config, key = hosts.here.rig.config, hosts.here.rig.credentials.openai_api_key
    before = {it.id for it in hosts.there.client.files.list()}
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    form += b"x" * 3_000_000
    head = (
        "POST /v1/files HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n"
    )
    with (
        contextlib.closing(open_database(config.store_url or "")) as database,
        socket.create_connection(("127.0.0.1", config.gateway_port), timeout=WAIT_S) as half,
    ):

        def unlisted() -> list[tuple[Any, ...]]:
            text = "SELECT num_bytes, expires_at FROM openai_unlisted"
            with database.read() as connection:
                return [tuple(it) for it in connection.exec_driver_sql(text)]

        half.sendall(head.encode() + form)
        until(lambda: any(size > 1_000_000 for size, _ in unlisted()), "a part is there")
        if victim == "the gateway":
            hosts.here.rig.kill()
            until(lambda: not unlisted(), "what came is removed at once")
            hosts.here.start_gateway()
        else:
            hosts.here.end_jobs(signal.SIGKILL)
            hosts.here.start_jobs()
            assert {it for _, it in unlisted()} <= {0.0}, "the next sweep removes it"
        assert {it.id for it in hosts.there.client.files.list()} == before
