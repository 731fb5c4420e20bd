"""The LLM server's adapters as real processes: remote ones, many at once, swapped under load."""

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cases import case, cases
from tests.integration.agent_rig import ObjectStore, object_store
from tests.integration.lmi_rig import Server, byte_model, engine_load, eventually, serving
from tests.models import random_adapter
from tests.unit.base.tars import Member, targz

pytestmark = pytest.mark.integration

SHORT = {"max_new_tokens": 12, "do_sample": False, "ignore_eos_token": True}
FILES = ("adapter_config.json", "adapter_model.safetensors")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("lmi")
    byte_model(made)
    cached_in_hub(made / "hf", made / "outside")
    return made


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("s3")) as store:
        yield store


@pytest.fixture(scope="module")
def shared(root: Path, s3: ObjectStore) -> Iterator[Server]:
    """One server for every test that leaves it as it was."""
    with serving(
        root / "model",
        root / "log",
        OPTION_ENABLE_LORA="true",
        HOSTELRY_ADAPTER_CACHE_DIR=str(root / "cache"),
        AWS_ENDPOINT_URL_S3=s3.url,
        AWS_ACCESS_KEY_ID="AKIATEST",
        AWS_SECRET_ACCESS_KEY="secret-of-the-test",
        AWS_DEFAULT_REGION="us-west-2",
        HF_HOME=str(root / "hf"),
        HF_HUB_OFFLINE="1",
    ) as server:
        yield server


def cached_in_hub(home: Path, adapter: Path) -> None:
    """Put the adapter into a hub cache as org/outside."""
    snapshot = home / "hub" / "models--org--outside" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)
    for name in FILES:
        (snapshot / name).symlink_to(adapter / name)


def answer_of(client: httpx.Client, adapter: str, **headers: str) -> httpx.Response:
    body = {"inputs": "hello", "parameters": SHORT, "adapters": adapter}
    return client.post("/invocations", json=body, headers=headers)


def text_of(client: httpx.Client, adapter: str) -> str:
    answer = answer_of(client, adapter)
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["generated_text"]
    return text


def streamed(client: httpx.Client, adapter: str) -> str:
    body = {"inputs": "hello", "parameters": SHORT, "adapters": adapter, "stream": True}
    lines = client.post("/invocations", json=body).text.splitlines()
    text: str = json.loads(lines[-1])["generated_text"]
    return text


def names_of(client: httpx.Client) -> list[str]:
    return [each["name"] for each in client.get("/adapters").json()["adapters"]]


@contextmanager
def registered(client: httpx.Client, name: str, src: str, **more: str) -> Iterator[dict[str, Any]]:
    """Register an adapter with this description. It is removed afterwards."""
    answer = client.post("/adapters", params={"name": name, "src": src, **more})
    assert answer.status_code == 200, answer.text
    try:
        described: dict[str, Any] = client.get(f"/adapters/{name}").json()
        yield described
    finally:
        client.delete(f"/adapters/{name}")


def members(folder: Path, prefix: str = "") -> list[Member]:
    return [Member(name=prefix + name, body=(folder / name).read_bytes()) for name in FILES]


def test_an_adapter_is_the_same_from_wherever_it_comes(
    shared: Server, root: Path, s3: ObjectStore
) -> None:
    outside = root / "outside"
    for name in FILES:
        s3.put(f"loras/one/{name}", (outside / name).read_bytes())
    s3.put("loras/one/checkpoint/optimizer.bin", b"not ours")
    s3.put("loras/one.tar.gz", targz(members(outside, "one/")))
    places = [
        str(outside),
        outside.as_uri(),
        "s3://models/loras/one",
        "s3://models/loras/one/",
        "s3://models/loras/one.tar.gz",
        "hf://org/outside",
    ]
    with shared.client() as client:
        reported = []
        for place in places:
            with registered(client, "far", place) as described:
                reported.append((described["version"], described["rank"], text_of(client, "far")))
        assert len(set(reported)) == 1, reported
        assert names_of(client) == ["es", "fr"]


@cases(
    "src, reported",
    case("a prefix without objects", "s3://models/nothing", "there is none of"),
    case("an archive that is not there", "s3://models/nothing.tar.gz", "NoSuchKey"),
    case("a bucket that is not there", "s3://nobody/x", "NoSuchBucket"),
    case("an archive that leads out", "s3://models/out.tar.gz", "leaves"),
    case("an archive with a link", "s3://models/link.tar.gz", "symbolic link"),
    case("an archive that is cut off", "s3://models/cut.tar.gz", "cut off"),
    case("an archive with two adapters", "s3://models/two.tar.gz", "of one: a, b"),
    case("no adapter at all", "s3://models/odd", "cannot be"),
    case("not in the hub", "hf://org/none", "the hub does not give it"),
    case("no name in the hub", "hf://org", "hf://organisation/name"),
)
def test_what_cannot_be_fetched_is_refused_and_leaves_nothing(
    shared: Server, root: Path, s3: ObjectStore, src: str, reported: str
) -> None:
    outside = root / "outside"
    whole = targz(members(outside))
    s3.put("out.tar.gz", targz([*members(outside), Member(name="../../x", body=b"out")]))
    s3.put(
        "link.tar.gz", targz([*members(outside), Member(name="l", kind=b"2", link="/etc/passwd")])
    )
    s3.put("cut.tar.gz", whole[: len(whole) // 2])
    s3.put("two.tar.gz", targz([*members(outside, "a/"), *members(outside, "b/")]))
    s3.put("odd/adapter_config.json", b"{")
    with shared.client() as client:
        answer = client.post("/adapters", params={"name": "bad", "src": src})
        assert answer.status_code == 424, answer.text
        assert reported in answer.json()["message"] or reported == "cannot be"
        assert names_of(client) == ["es", "fr"]
    leftovers = [it.name for it in (root / "cache").iterdir() if it.name.startswith(".")]
    assert leftovers == []


def test_many_registrations_at_once_beside_a_stream(shared: Server, root: Path) -> None:
    folders = [
        random_adapter(root / f"many-{seed}", root / "model", rank=4, seed=seed)
        for seed in range(24)
    ]
    with shared.client() as client, ThreadPoolExecutor(24) as pool:
        body = {"inputs": "x", "parameters": {**SHORT, "max_new_tokens": 3000}, "stream": True}
        with client.stream("POST", "/invocations", json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            names = [folder.name for folder in folders]
            answers = list(
                pool.map(
                    lambda it: client.post("/adapters", params={"name": it.name, "src": str(it)}),
                    folders,
                )
            )
            assert [it.status_code for it in answers] == [200] * 24
            assert sorted(names_of(client)) == sorted(["es", "fr", *names])
            assert json.loads(next(lines))["token"], "the stream goes on"
        texts = list(pool.map(lambda name: text_of(client, name), names))
        assert len(set(texts)) > 20
        assert [text_of(client, name) for name in names[:3]] == texts[:3]
        for name in names:
            assert client.delete(f"/adapters/{name}").status_code == 200


def test_a_version_is_swapped_under_load_and_every_answer_is_one_version(
    shared: Server, root: Path
) -> None:
    sources = [
        random_adapter(root / f"swap-{seed}", root / "model", rank=8, seed=40 + seed)
        for seed in range(2)
    ]
    with shared.client() as client, registered(client, "swap", str(sources[0])) as described:
        versions, expected = [described["version"]], [text_of(client, "swap")]
        with registered(client, "other", str(sources[1])) as other:
            versions.append(other["version"])
            expected.append(text_of(client, "other"))
        assert expected[0] != expected[1]
        stop = threading.Event()
        seen: list[tuple[str, str | None]] = []

        def ask(number: int) -> None:
            while not stop.is_set():
                if number % 2:
                    seen.append((streamed(client, "swap"), None))
                else:
                    answer = answer_of(client, "swap")
                    version = answer.headers["x-hostelry-adapter-version"]
                    seen.append((answer.json()["generated_text"], version))

        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(ask, number) for number in range(4)]
            for turn in range(6):
                update = {"src": str(sources[(turn + 1) % 2])}
                assert client.post("/adapters/swap/update", params=update).status_code == 200
                wanted = (turn + 1) % 2
                answer = answer_of(client, "swap")
                assert answer.headers["x-hostelry-adapter-version"] == versions[wanted]
                assert answer.json()["generated_text"] == expected[wanted]
            stop.set()
            for each in asking:
                each.result()
    assert {text for text, _ in seen} <= set(expected)
    for text, version in seen:
        assert version is None or expected[versions.index(version)] == text


def test_an_update_that_fails_keeps_the_old_version(shared: Server, root: Path) -> None:
    bad = random_adapter(root / "bad", root / "model", rank=4, use_dora=True)
    with shared.client() as client:
        before = client.get("/adapters/es").json()
        text = text_of(client, "es")
        refused = client.post("/adapters/es/update", params={"src": str(bad)})
        assert (refused.status_code, "use_dora" in refused.text) == (424, True)
        after = client.get("/adapters/es").json()
        assert (after["src"], after["version"]) == (before["src"], before["version"])
        assert text_of(client, "es") == text


def test_pins_come_and_go_and_report_the_tier(shared: Server) -> None:
    with shared.client() as client:
        assert client.post("/adapters/fr/update?pin=true").status_code == 200
        text_of(client, "fr")
        described = client.get("/adapters/fr").json()
        assert (described["pin"], described["tier"]) == (True, "pool")
        assert sum(described["hits"].values()) == described["requests"] > 0
        model = client.get("/models/lmi").json()[0]["models"][0]
        assert model["engine"]["pinnedPages"] == described["poolPages"]
        tiers = model["adapterTiers"]
        assert 0 < tiers["host"]["bytes"] <= tiers["host"]["maxBytes"]
        assert client.post("/adapters/fr/update?pin=false").status_code == 200
        assert engine_load(client)["pinnedPages"] == 0


def test_a_lazy_adapter_is_read_by_its_first_request(shared: Server, root: Path) -> None:
    with shared.client() as client:
        place = str(root / "outside")
        with registered(client, "eager", place):
            text = text_of(client, "eager")
        with registered(client, "lazy", place, preload="false") as described:
            assert described["loaded"] is False
            assert text_of(client, "lazy") == text
            assert client.get("/adapters/lazy").json()["loaded"] is True


def test_a_source_that_hangs_holds_up_no_other(root: Path, tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        serving(
            root / "model",
            tmp_path / "log",
            OPTION_ENABLE_LORA="true",
            AWS_ENDPOINT_URL_S3=f"http://127.0.0.1:{silent.getsockname()[1]}",
            AWS_ACCESS_KEY_ID="a",
            AWS_SECRET_ACCESS_KEY="b",
            AWS_DEFAULT_REGION="us-west-2",
        ) as server,
        server.client() as client,
        ThreadPoolExecutor(6) as pool,
    ):
        hanging = [
            pool.submit(client.post, f"/adapters?name=h{n}&src=s3://b/h{n}") for n in range(5)
        ]
        connection, _ = silent.accept()
        assert client.post("/adapters?name=lazy&src=s3://b/x&preload=false").status_code == 200
        hanging.append(pool.submit(answer_of, client, "lazy"))
        with registered(client, "fine", str(root / "outside")):
            assert text_of(client, "fine") != text_of(client, "es")
        assert not any(each.done() for each in hanging)
        assert server.status() == 200
        server.process.kill()
        for each in hanging:
            assert isinstance(each.exception(), httpx.HTTPError)
        connection.close()


@pytest.mark.thorough
def test_adapters_larger_than_their_place_are_507(root: Path, tmp_path: Path) -> None:
    with (
        serving(
            root / "model",
            tmp_path / "log",
            OPTION_ENABLE_LORA="true",
            OPTION_ADAPTERS="none",
            OPTION_ADAPTER_HOST_BYTES="1000",
        ) as server,
        server.client() as client,
    ):
        refused = client.post("/adapters", params={"name": "a", "src": str(root / "outside")})
        assert (refused.status_code, "adapter_host_bytes" in refused.text) == (507, True)
        assert names_of(client) == []
        assert text_of(client, "")


def test_pins_beyond_their_share_of_the_pool_are_507(root: Path, tmp_path: Path) -> None:
    with (
        serving(
            root / "model",
            tmp_path / "log",
            OPTION_ENABLE_LORA="true",
            OPTION_POOL_BYTES=str(1 << 20),
        ) as server,
        server.client() as client,
    ):
        statuses = []
        for seed in range(4):
            folder = random_adapter(tmp_path / f"p{seed}", root / "model", rank=16, seed=seed)
            query = {"name": folder.name, "src": str(folder), "pin": "true"}
            statuses.append(client.post("/adapters", params=query).status_code)
        assert 507 in statuses
        assert len(names_of(client)) == 2 + statuses.count(200)
        eventually(lambda: bool(text_of(client, "es")), "the others are served")
