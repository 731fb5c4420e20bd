"""Triton's model server as a process: answers, batches, deaths, hangs and leftovers."""

import os
import signal
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.integration.framework_rig import runtimes_with
from tests.integration.lmi_rig import END_S, eventually
from tests.integration.triton_rig import (
    BINARY,
    CONFIG,
    Files,
    TritonServer,
    ensemble,
    launched,
    numbers,
    serving,
    tensor,
    times,
    unpacked,
    with_environment,
)

from hostelry.base.proc import processes
from hostelry.containers.http.serving_app import EXIT_FAILURE

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def runtimes() -> Path:
    return runtimes_with("triton")


@pytest.fixture(scope="module")
def server(runtimes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    root = tmp_path_factory.mktemp("triton")
    folder = unpacked(root / "model", ensemble("2", "5"))
    limits = {"SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "3"}
    with serving(
        folder, root, runtimes, SAGEMAKER_TRITON_DEFAULT_MODEL_NAME="both", **limits
    ) as found:
        yield found


def triton_of(server: TritonServer) -> int:
    """The process of tritonserver, which is the front's only child. 0 without it."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    return int(children or 0)


def session_of(server: TritonServer) -> list[int]:
    """Triton's processes: the server, and the processes of models."""
    triton = triton_of(server)
    return [it.pid for it in processes() if it.session == triton]


def test_an_ensemble_answers_json_and_binary_tensors(server: TritonServer) -> None:
    status, text = server.ask(3, 4)
    assert (status, numbers(text.encode())) == (200, [30, 40])
    head = (
        b'{"inputs":[{"name":"x","shape":[2,1],"datatype":"FP32",'
        b'"parameters":{"binary_data_size":8}}],"parameters":{"binary_data_output":true}}'
    )
    with server.client() as client:
        answer = client.post(
            "/invocations",
            content=head + struct.pack("<2f", 1.5, -0.5),
            headers={"Content-Type": f"{BINARY}{len(head)}"},
        )
        torn = client.post("/invocations", content=head, headers={"Content-Type": f"{BINARY}999"})
    size = int(answer.headers["content-type"].removeprefix(BINARY))
    assert struct.unpack("<2f", answer.content[size:]) == (15, -5)
    assert (torn.status_code, "json-header-size is '999'" in torn.text) == (400, True)


def test_requests_at_once_are_one_batch(server: TritonServer) -> None:
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: server.ask(-4), range(6)))
    # Of the ensemble's second model: the first one's count, times 5.
    counts = [numbers(text.encode())[0] / 5 for _, text in answers]
    assert max(counts) > 1, counts
    with server.client() as client:
        page = client.get("/metrics").text
    executions = {
        line.split('model="')[1].split('"')[0]: float(line.split()[-1])
        for line in page.splitlines()
        if line.startswith("nv_inference_exec_count{")
    }
    requests = {
        line.split('model="')[1].split('"')[0]: float(line.split()[-1])
        for line in page.splitlines()
        if line.startswith("nv_inference_request_success{")
    }
    assert executions["first"] < requests["first"]
    assert "hostelry_model_requests_total" in page


def test_an_error_is_that_of_its_request_with_no_path_of_the_machine(server: TritonServer) -> None:
    status, text = server.ask(-1)
    assert status == 400
    assert "of this request alone" in text
    status, text = server.ask(-5)
    assert (status, "ValueError: of all requests" in text) == (400, True)
    assert "first/1/model.py" in text
    assert str(server.log.parent) not in text
    assert server.ask(1) == (200, server.ask(1)[1])


def test_it_listens_on_its_own_port_and_keeps_what_it_is_sent_from_others(
    server: TritonServer,
) -> None:
    assert httpx.post(f"{server.url}/invocations", content=tensor(1)).status_code == 403
    pids = {server.process.pid, *session_of(server)}
    inodes = {
        os.readlink(link)
        for pid in pids
        for link in Path(f"/proc/{pid}/fd").iterdir()
        if os.readlink(link).startswith("socket:")
    }
    listening = [
        row.split()[1]
        for table in ("tcp", "tcp6")
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if row.split()[3] == "0A" and f"socket:[{row.split()[9]}]" in inodes
    ]
    port = int(server.url.rpartition(":")[2])
    assert listening == [f"0100007F:{port:04X}"]
    assert server.regions()
    modes = {oct(Path(f"/dev/shm/{it}").stat().st_mode & 0o777) for it in server.regions()}
    assert modes == {"0o600"}
    assert (server.log.parent / "copy" / "triton").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"inputs": 1}', b"\xff" * 100, tensor()])
def test_nonsense_is_refused(server: TritonServer, body: bytes) -> None:
    with server.client() as client:
        kind = {"Content-Type": "application/json"}
        assert client.post("/invocations", content=body, headers=kind).status_code == 400
    assert server.ask(1)[0] == 200


def test_a_models_process_that_dies_is_replaced(server: TritonServer) -> None:
    before = server.regions()
    status, text = server.ask(-2)
    assert status == 502
    assert "the model's process died" in text
    eventually(lambda: server.ask(1)[0] == 200, "it answers again")
    assert len(server.regions()) == len(before)
    assert not set(server.regions()) & set(before)


def test_a_model_that_hangs_is_replaced(server: TritonServer) -> None:
    status, text = server.ask(-3)
    assert status == 504
    assert "within 3 s" in text
    eventually(lambda: server.ask(1)[0] == 200, "it answers again")


def test_a_server_that_is_killed_is_replaced_before_a_request_finds_it_so(
    server: TritonServer,
) -> None:
    (triton, *_) = sorted(session_of(server))
    os.kill(triton, signal.SIGKILL)
    eventually(lambda: triton_of(server) not in (0, triton), "another is there")
    eventually(lambda: server.status() == 200, "it is ready")
    assert server.ask(1)[0] == 200


def test_a_killed_front_leaves_no_process_and_the_next_one_no_file(
    runtimes: Path, tmp_path: Path
) -> None:
    folder = unpacked(tmp_path / "model", with_environment())
    with serving(folder, tmp_path, runtimes) as found:
        used = found.environments()
        assert any((it / "0" / "packages" / "own.py").exists() for it in used)
        pids = session_of(found)
        left = found.regions()
        os.kill(found.process.pid, signal.SIGKILL)
        found.process.wait(END_S)
        eventually(lambda: not {it.pid for it in processes()} & set(pids), "all ended")
    (Path("/dev/shm") / left[0]).touch()  # as if a model's process had been killed as well
    with serving(folder, tmp_path, runtimes) as found:
        assert numbers(found.ask(2)[1].encode()) == [6]
        assert left[0] not in found.regions()
        assert not any(it.exists() for it in used)
        used = found.environments()
        found.process.terminate()
        assert found.process.wait(END_S) == 0
        assert "finalized" in found.log.read_text()
        assert not any(it.exists() for it in used)
        assert found.regions() == []


DIES = """
import os
class TritonPythonModel:
    def execute(self, requests):
        os._exit(3)
"""
BROKEN: dict[str, tuple[Files, str]] = {
    "a model that cannot be loaded": (times("torn"), "times: Internal: ValueError: could not"),
    "no configuration": ({"times/1/weights": "x"}, "times has no config.pbtxt, nor one of"),
    "no version": ({"times/config.pbtxt": 'backend: "python"'}, "times has no version folder"),
    "no backend": (
        {"times/config.pbtxt": 'backend: "onnxruntime"', "times/1/model.onnx": "x"},
        "needs the backend 'onnxruntime'",
    ),
    "several models": ({**times("1", "a"), **times("2", "b")}, "several models (a, b)"),
    "nothing": ({}, "the archive has no model"),
    "a model that dies with zeros": (
        {**times("1"), "times/1/model.py": DIES},
        "with a request of zeros the model's process died",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_model_that_cannot_serve_ends_the_start_with_its_cause(
    name: str, runtimes: Path, tmp_path: Path
) -> None:
    files, reason = BROKEN[name]
    (tmp_path / "model").mkdir()
    with launched(unpacked(tmp_path / "model", files), tmp_path, runtimes) as found:
        assert found.process.wait(60) == EXIT_FAILURE
        last = found.log.read_text(errors="replace").strip().splitlines()[-1]
        assert f"the server ends: {reason}" in last or reason in last
        assert str(tmp_path / "model") not in last
        assert found.regions() == []


def test_without_a_server_the_failure_names_the_command_that_installs_one(tmp_path: Path) -> None:
    folder = unpacked(tmp_path / "model", times("3"))
    with launched(folder, tmp_path, tmp_path / "none") as found:
        assert found.process.wait(60) == 2
        assert "hostelry runtimes install triton" in found.log.read_text()


def load(server: TritonServer, name: str, url: Path) -> httpx.Response:
    with server.client() as client:
        body = {"model_name": name, "url": str(url)}
        named = {"X-Amzn-SageMaker-Target-Model": f"{name}.tar.gz"}
        return client.post("/models", json=body, headers=named)


def test_many_models_are_loaded_beside_each_other_and_leave_nothing(
    runtimes: Path, tmp_path: Path
) -> None:
    flat = {"config.pbtxt": CONFIG, "1/model.py": times("7")["times/1/model.py"],
            "1/factor": "7"}  # fmt: skip
    archives: dict[str, Files] = {
        "a": times("2"), "b": times("3"), "both": ensemble("2", "3"), "flat": flat,
    }  # fmt: skip
    with serving(tmp_path, tmp_path, runtimes, SAGEMAKER_MULTI_MODEL="true") as found:
        folders = {name: unpacked(tmp_path / name, it) for name, it in archives.items()}
        with ThreadPoolExecutor(4) as pool:
            loaded = list(pool.map(lambda it: load(found, *it), folders.items()))
        assert [it.status_code for it in loaded] == [200] * 4, [it.text for it in loaded]
        assert load(found, "a", folders["a"]).status_code == 409
        answers = {
            name: numbers(found.ask(1, path=f"/models/{name}/invoke")[1].encode())[0]
            for name in archives
        }
        assert answers == {"a": 2, "b": 3, "both": 6, "flat": 7}
        torn = load(found, "torn", unpacked(tmp_path / "torn", times("torn")))
        assert (torn.status_code, "could not convert string" in torn.text) == (400, True)
        with found.client() as client:
            page = client.get("/metrics").text
            described = client.get("/models/a").json()
            assert client.delete("/models/a").status_code == 200
            assert client.delete("/models/a").status_code == 404
        assert 'nv_inference_count{target_model="a.tar.gz",model="times",version="1"}' in page
        assert 10 * 2**20 < described["memoryBytes"] < 2**30
        status, text = found.ask(-2, path="/models/b/invoke")
        assert (status, "the model's process died" in text) == (502, True)
        assert found.ask(1, path="/models/both/invoke")[0] == 200
        assert found.ask(1, path="/models/b/invoke")[0] == 200
        assert found.ask(1, path="/models/a/invoke")[0] == 404
        assert len(found.regions()) == 4
    assert found.regions() == []
