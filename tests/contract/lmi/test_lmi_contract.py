"""The LLM container's contract over HTTP, on our engine, and on vLLM if it is installed."""

import json
import os
import pickle
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.contract.lmi import (
    adapter_cases,
    async_cases,
    legacy_cases,
    option_cases,
)
from tests.contract.lmi.exchange import OURS, ROWS, VLLM, Case, Served
from tests.integration import lmi_rig
from tests.models import random_adapter, tiny_llama
from tests.unit.containers.lmi.tiny import write_tokenizer

from hostelry.base.runtimes import VARIABLE, find_installed, runtimes_folder

pytestmark = pytest.mark.integration
FOLDER = runtimes_folder(os.environ)
BACKENDS = (OURS, VLLM) if find_installed(FOLDER, VLLM) else (OURS,)
VLLM_START_S = 240.0
TABLES: dict[str, tuple[Case, ...]] = {
    "async": (*async_cases.CASES, *adapter_cases.CASES),
    "legacy": legacy_cases.CASES,
    "options": option_cases.CASES,
}
KINDS = [(setup, backend) for backend in BACKENDS for setup in TABLES]
STARTS_THAT_FAIL = {
    "a script": ("DISALLOW_CUSTOM_INFERENCE_SCRIPTS", "model.py", "custom inference scripts"),
    "pickled weights": ("DISALLOW_PICKLE_FILES", "more/weights.PT", "weights.PT"),
    "packages": ("DISALLOW_REQUIREMENTS_TXT", "requirements.txt", "requirements.txt"),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_places(tmp_path_factory.mktemp("contract"))


def write_places(root: Path) -> dict[str, Path]:
    """Models and adapters by the names that the cases have for them."""
    model = tiny_llama(root / "async", vocab_size=259, max_position_embeddings=2048, head_dim=32)
    write_tokenizer(model)
    for name in ("legacy", "options/inner"):
        shutil.copytree(model, root / name)
    bare = root / "legacy" / "tokenizer_config.json"
    settings = json.loads(bare.read_text())
    bare.write_text(json.dumps({it: settings[it] for it in settings if it != "chat_template"}))
    inner = root / "options" / "inner"
    (inner / "serving.properties").write_text(option_cases.PROPERTIES)
    (inner / "chat.jinja").write_text(option_cases.TEMPLATE)
    (inner / "model.py").write_text(option_cases.MODEL_PY)
    found = {"root": root}
    for seed, name in enumerate(("es", "fr"), 1):
        found[name] = random_adapter(model / "adapters" / name, model, rank=8, seed=seed)
    found["outside"] = random_adapter(root / "outside", model, rank=4, seed=9)
    found["wide"] = random_adapter(root / "wide", model, rank=32, seed=9)
    found["dora"] = random_adapter(root / "dora", model, rank=4, use_dora=True)
    for name, file, content in (
        ("coded", "model.py", b"x = 1\n"),
        ("pickled", "adapter_model.bin", pickle.dumps({})),
        ("required", "requirements.txt", b"requests\n"),
    ):
        found[name] = shutil.copytree(found["outside"], root / name)
        (found[name] / file).write_bytes(content)
    return found


def variables(setup: str, backend: str) -> dict[str, str]:
    """The environment of a server of this kind."""
    runtime = {VARIABLE: str(FOLDER if backend == VLLM else "/nowhere/runtimes")}
    if setup == "legacy":  # rolling_batch chooses vLLM, or our engine if vLLM is missing
        controls = "DISALLOW_CUSTOM_INFERENCE_SCRIPTS,DISALLOW_PICKLE_FILES,"
        return runtime | {
            "OPTION_ROLLING_BATCH": "vllm",
            "OPTION_ENABLE_LORA": "true",
            "SAGEMAKER_SECURE_MODE": "true",
            "SAGEMAKER_SECURITY_CONTROLS": controls
            + "DISALLOW_REQUIREMENTS_TXT,DISALLOW_CHAT_TEMPLATE,DISALLOW_TRUST_REMOTE_CODE",
        }
    runtime |= {"OPTION_BACKEND": backend, "OPTION_POOL_BYTES": str(64 << 20)}
    if setup == "options":
        return runtime | option_cases.ENVIRONMENT
    return runtime | {"OPTION_ENABLE_LORA": "true"}


class OneServer:
    """The server of the kind that was last requested. A request for another kind ends it."""

    def __init__(self, places: dict[str, Path]) -> None:
        self._places = places
        self._running = ExitStack()
        self._kind: tuple[str, str] | None = None
        self._served: Served | None = None

    def of(self, kind: tuple[str, str]) -> Served:
        if self._served is None or kind != self._kind:
            self.end()
            self._served, self._kind = self._started(*kind), kind
        return self._served

    def end(self) -> None:
        self._served = None
        self._running.close()

    def _started(self, setup: str, backend: str) -> Served:
        root = self._places["root"]
        log = root / f"{setup}-{backend}.log"
        with pytest.MonkeyPatch.context() as patch:
            if backend == VLLM:
                patch.setattr(lmi_rig, "START_S", VLLM_START_S)
            running = lmi_rig.serving(root / setup, log, **variables(setup, backend))
            server = self._running.enter_context(running)
        client = self._running.enter_context(server.client())
        return Served(backend=backend, client=client, log=log, places=self._places)


@pytest.fixture(scope="module")
def one_server(places: dict[str, Path]) -> Iterator[OneServer]:
    one = OneServer(places)
    yield one
    one.end()


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        pytest.param(kind, case, id=f"{case.name}, {' on '.join(kind)}")
        for kind in KINDS
        for case in TABLES[kind[0]]
    ],
)
def test_contract(one_server: OneServer, kind: tuple[str, str], case: Case) -> None:
    case.check(one_server.of(kind))


@pytest.mark.parametrize("brought", STARTS_THAT_FAIL)
def test_1_16_a_model_with_what_secure_mode_forbids_does_not_start(
    brought: str, tmp_path: Path
) -> None:
    control, file, words = STARTS_THAT_FAIL[brought]
    path = tmp_path / "model" / file
    path.parent.mkdir(parents=True)
    path.write_text("x")
    (tmp_path / "model" / "config.json").write_text("{}")
    secure = {
        "SAGEMAKER_SECURE_MODE": "true",
        "SAGEMAKER_SECURITY_CONTROLS": control,
        "HOSTELRY_CUSTOM_CODE": "confined",  # else the operator has forbidden it already
    }
    process, _ = lmi_rig.start(tmp_path / "model", tmp_path / "log", **secure)
    assert process.wait(lmi_rig.START_S) in (1, 2)
    assert words in (tmp_path / "log").read_text()


def test_every_row_of_the_contract_has_a_case() -> None:
    shown = {case.row for table in TABLES.values() for case in table}
    assert shown == set(ROWS)


def test_cases_have_names_of_their_own() -> None:
    for setup, table in TABLES.items():
        names = [case.name for case in table]
        assert len(names) == len(set(names)), setup


def test_the_backends_that_are_run() -> None:
    if VLLM not in BACKENDS:
        pytest.skip(f"vLLM is not installed in {FOLDER}: hostelry runtimes install vllm")
