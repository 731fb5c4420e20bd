"""A model's Environment, and an archive of the same hand, against the copies that they are for.

Every copy is real and started by a real agent.
"""

import asyncio
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.hostile.payloads import Payloads
from tests.integration.agent_rig import ObjectStore, Rig, echo, object_store, rig, until
from tests.integration.fake_hub import fake_hub, served
from tests.integration.lmi_rig import byte_model
from tests.selection import first_alone

from hostelry.domain.copy import CopyPhase, CopySpec, CopyStatus
from hostelry.domain.model import ArtifactSource

pytestmark = pytest.mark.integration

SETTLED = (CopyPhase.READY, CopyPhase.FAILED)
LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F")
IMAGES = """
[[image]]
pattern = "shell:*"
command = ["bash", "{script}"]
[image.probe]
content_type = "application/json"
body = "{{}}"
"""


@pytest.fixture(scope="module")
def payloads(tmp_path_factory: pytest.TempPathFactory) -> Payloads:
    made = Payloads(tmp_path_factory.mktemp("payloads"))
    made.write()
    return made


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as there:
        yield there


@pytest.fixture(scope="module")
def model(store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> ArtifactSource:
    """A tiny LLM, as an archive."""
    return store.put_archive("llm.tar.gz", byte_model(tmp_path_factory.mktemp("model")))


@contextmanager
def platform(root: Path, s3_url: str = "http://127.0.0.1:9") -> Iterator[Rig]:
    """A home whose operator serves with a shell script, too."""
    with rig(root, s3_url) as there:
        script = root / "serve.sh"
        script.write_text(f'exec "{sys.executable}" -m hostelry.containers.drill\n')
        there.home.images.write_text(IMAGES.format(script=script))
        yield there


def copy(
    copy_id: str, image: str, environment: dict[str, str], source: ArtifactSource | None = None
) -> CopySpec:
    made = echo(copy_id, image=image, startup_timeout_s=120.0)
    return replace(made, container=replace(made.container, environment=environment, source=source))


async def settled(there: Rig, copies: list[CopySpec]) -> dict[str, CopyStatus]:
    """Each copy, once it is ready or failed."""
    agent = await there.launch()
    await agent.apply(copies)
    return await until(agent, lambda it: all(each.phase in SETTLED for each in it.values()))


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 240))


@pytest.mark.parametrize("image", ["hostelry/drill:1", "shell:1"])
def test_no_variable_with_an_archive_runs_code_in_a_program(
    image: str, payloads: Payloads, tmp_path: Path
) -> None:
    """A separate copy for each variable, with a built-in server and with an operator's command."""
    table = payloads.attacks()

    async def work() -> None:
        desired = [copy(f"c-{name}", image, {name: it}) for name, it in table.items()]
        found = await settled(there, desired)
        assert list(payloads.markers.iterdir()) == []
        for name in table:
            status = found[f"c-{name}"]
            assert status.phase is CopyPhase.READY, status
            assert status.left_out == (name,)
            log = there.folder().root / "copies" / status.id / "log"
            assert log.read_text().count(name) == 1, "it is named once"

    with platform(tmp_path) as there:
        run(work())


def test_no_variable_with_an_archive_runs_code_in_the_llm_server(
    payloads: Payloads, store: ObjectStore, model: ArtifactSource, tmp_path: Path
) -> None:
    """All at once, in a copy that is forked and in one that is started as a program."""
    wicked = {**payloads.attacks(), "SAGEMAKER_BIND_HOST": "0.0.0.0", "OMP_NUM_THREADS": "9999"}

    async def work() -> None:
        desired = [
            copy("c-warm", "lmi:1", wicked, model),
            copy("c-cold", "lmi:1", {**wicked, "HF_HUB_OFFLINE": "1"}, model),
        ]
        found = await settled(there, desired)
        assert list(payloads.markers.iterdir()) == []
        for status in found.values():
            assert status.phase is CopyPhase.READY, status
            assert set(status.left_out) == set(wicked) - {"OMP_NUM_THREADS"}
            assert listening(status) <= set(LOOPBACK)
        assert [found["c-warm"].start_kind, found["c-cold"].start_kind] == ["warm", "cold"]

    with platform(tmp_path, store.url) as there:
        run(work())


@pytest.mark.parametrize("image", ["hostelry/drill:1", "shell:1"])
def test_no_variable_opens_a_copy_to_the_network(image: str, tmp_path: Path) -> None:
    async def work() -> None:
        found = await settled(there, [copy("c-1", image, {"SAGEMAKER_BIND_HOST": "0.0.0.0"})])
        assert found["c-1"].phase is CopyPhase.READY
        assert listening(found["c-1"]) <= set(LOOPBACK)
        assert found["c-1"].left_out == ("SAGEMAKER_BIND_HOST",)

    with platform(tmp_path) as there:
        run(work())


@pytest.mark.parametrize(
    ("environment", "token"),
    first_alone([
        pytest.param(
            lambda url: {"HF_ENDPOINT": url, "HF_INFERENCE_ENDPOINT": url},
            "operators-token", id="another hub",
        ),
        pytest.param(
            lambda url: dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"), url),
            "operators-token", id="a proxy",
        ),
        pytest.param(
            lambda url: {"HF_ENDPOINT": url, "HUGGING_FACE_HUB_TOKEN": "callers-token"},
            "callers-token", id="another hub, and a token of the caller's",
        ),
    ]),
)  # fmt: skip
def test_a_token_is_sent_to_the_operators_hub_only(
    environment: Any, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        given = {**environment(theirs.url), "HF_MODEL_ID": "org/model"}
        found = await settled(there, [copy("c-1", "lmi:1", given)])
        assert found["c-1"].phase is CopyPhase.FAILED, "the operator's hub has no such model"
        assert theirs.tokens == []
        assert set(ours.tokens) - {None} == {f"Bearer {token}"}

    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with listener() as ours, listener() as theirs:
        monkeypatch.setenv("HF_ENDPOINT", ours.url)
        monkeypatch.setenv("HF_TOKEN", "operators-token")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
        with platform(tmp_path) as there:
            run(work())


def test_an_llm_beside_trusted_code_has_a_gated_model_and_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent downloads it. All processes of the server are examined, as its code could do."""

    async def work() -> None:
        found = await settled(there, [copy("c-1", "lmi:1", {"HF_MODEL_ID": "org/model"})])
        status = found["c-1"]
        assert status.phase is CopyPhase.READY, status
        assert set(hub.tokens) - {None} == {"Bearer operators-token"}
        assert status.pid is not None
        processes = [status.pid, *map(int, children_of(status.pid))]
        assert not any(b"operators-token" in variables_of(pid) for pid in processes)

    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    model = byte_model(tmp_path / "llm")
    with fake_hub("org/model", model, token="operators-token") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", "operators-token")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
        monkeypatch.setenv("HOSTELRY_CUSTOM_CODE", "trusted")
        with platform(tmp_path) as there:
            run(work())


def children_of(pid: int) -> list[str]:
    """The children of a process. Source: proc(5)."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def variables_of(pid: int) -> bytes:
    """The variables that a process was started with."""
    return Path(f"/proc/{pid}/environ").read_bytes()


class Listener:
    """A web server without content. It records the authorization headers that it gets."""

    def __init__(self) -> None:
        self.tokens: list[str | None] = []
        seen = self.tokens

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append(self.headers.get("Authorization"))
                self.send_error(404)

            do_HEAD = do_CONNECT = do_POST = do_GET

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def listener() -> Iterator[Listener]:
    made = Listener()
    with served(made.server):
        yield made


def listening(status: CopyStatus) -> set[str]:
    """The addresses on which a process listens at the copy's port. Source: proc(5)."""
    assert status.address is not None
    port = int(status.address.rpartition(":")[2])
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, _, number = local.partition(":")
            if state == "0A" and int(number, 16) == port:
                found.add(address)
    assert found, f"nobody listens on {port}"
    return found
