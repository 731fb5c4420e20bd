import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.domain.model import ArtifactSource, Container, SourceKind
from hostelry.fleet.agent.orders import find_hub_downloads
from hostelry.fleet.artifacts.cache import ArtifactCache
from hostelry.fleet.artifacts.hub import HubModels, needed_files
from hostelry.fleet.artifacts.objects import ObjectFacts, S3Objects
from hostelry.fleet.artifacts.protocol import ArtifactError, Fetch
from hostelry.fleet.artifacts.sources import HUB_MODEL, find_hub_source, find_hub_token
from hostelry.fleet.artifacts.store import ArtifactStore
from hostelry.fleet.rules.images import LMI_RULE, TRITON_RULE, ImageRule, framework_rule

HUGGING_FACE = framework_rule(
    "huggingface-pytorch-inference:2.6.0-transformers4.49.0-cpu-py312-ubuntu22.04"
)
SCIKIT = framework_rule("sagemaker-scikit-learn:1.2-1")
TRUSTED = {"HOSTELRY_CUSTOM_CODE": "trusted"}
OFFLINE = {"HF_HUB_OFFLINE": "1"}
MODEL = ArtifactSource(uri="hf://org/m", kind=SourceKind.PREFIX)


@cases(
    "rule, operator, environment, names",
    case("a server of code is given the files", HUGGING_FACE, {}, {"HF_MODEL_ID": "org/m"},
        ("HF_MODEL_ID",)),
    case("offline it reads the operator's cache", HUGGING_FACE, OFFLINE, {"HF_MODEL_ID": "org/m"},
        ()),
    case("a folder", HUGGING_FACE, {}, {"HF_MODEL_ID": "/opt/ml/model"}, ()),
    case("a framework without the hub", SCIKIT, {}, {"HF_MODEL_ID": "org/m"}, ()),
    case("Triton", TRITON_RULE, {}, {"HF_MODEL_ID": "org/m"}, ()),
    case("the LLM server downloads by itself where no author's code runs", LMI_RULE, {},
        {"HF_MODEL_ID": "org/m"}, ()),
    case("an LLM keeps the id by which clients know it", LMI_RULE, TRUSTED,
        {"HF_MODEL_ID": "org/m"}, (HUB_MODEL,)),
)  # fmt: skip
def test_the_agent_downloads_for_servers_without_the_token(
    rule: ImageRule, operator: dict[str, str], environment: dict[str, str], names: tuple[str, ...]
) -> None:
    found = find_hub_downloads(rule, Container(image="x", environment=environment), operator)
    assert found == dict.fromkeys(names, MODEL)


def test_revision_and_token_are_the_containers_own() -> None:
    given = {"HF_MODEL_ID": "org/m", "HF_MODEL_REVISION": "v2", "HF_TOKEN": "own"}
    container = Container(image="x", environment=given)
    assert find_hub_source(container) == ArtifactSource(uri="hf://org/m@v2", kind=SourceKind.PREFIX)
    assert find_hub_token(container) == "own"


@cases(
    "names, needed",
    case("safe weights in the place of pickled ones",
        ("config.json", "model.safetensors", "pytorch_model.bin", "original/a.pth"),
        ["config.json", "model.safetensors"]),
    case("pickled ones where there are no others", ("a.json", "pytorch_model.bin"),
        ["a.json", "pytorch_model.bin"]),
    case("nothing of other frameworks",
        ("tf_model.h5", "onnx/model.json", ".gitattributes", "1_Pooling/config.json"),
        ["1_Pooling/config.json"]),
)  # fmt: skip
def test_needed_files(names: tuple[str, ...], needed: list[str]) -> None:
    assert needed_files(names) == needed


class OneModelHub(HubModels):
    """A hub with one model, which may need the right token."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names
        self.num_downloads = 0

    def list(self, uri: str, token: str | None) -> list[ObjectFacts]:
        if token not in (None, "own"):
            raise ArtifactError(f"{uri}: 401")
        return [ObjectFacts(bucket="org/m", key=it, size_bytes=1, etag="c0") for it in self.names]

    def download(
        self,
        objects: Sequence[ObjectFacts],
        into: Path,
        token: str | None,
        check_cancelled: Callable[[], None],
    ) -> None:
        self.num_downloads += 1
        for facts in objects:
            check_cancelled()
            (into / facts.key).write_text(token or "operator")


def fetched(store: ArtifactStore, token: str | None) -> Path:
    want = Fetch(source=MODEL, holder=f"c/{token}", note=lambda _: None, token=token)
    return asyncio.run(store.fetch(want))


def test_what_a_token_opens_is_for_holders_of_that_token(tmp_path: Path) -> None:
    hub = OneModelHub("config.json")
    store = ArtifactStore(S3Objects(None), ArtifactCache(tmp_path), hub=hub)
    for token in (None, "own", None):
        folder = fetched(store, token)
        assert (folder / "config.json").read_text() == (token or "operator")
    assert hub.num_downloads == 2
    with pytest.raises(ArtifactError, match="401"):
        fetched(store, "wrong")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("../out", "cannot be a path"), ("", "has no files")],
)
def test_a_model_that_is_no_folder_is_refused(name: str, reason: str, tmp_path: Path) -> None:
    hub = OneModelHub(*([name] if name else []))
    store = ArtifactStore(S3Objects(None), ArtifactCache(tmp_path), hub=hub)
    with pytest.raises(ArtifactError, match=reason):
        fetched(store, None)
