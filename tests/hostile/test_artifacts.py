"""Archives and the paths in them, against real agents and model servers.

Paths in an archive stay within the model's folder. A path that leads elsewhere ends the copy with a
reason, and nothing is touched there.
"""

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.hostile.test_environment import copy, platform, run, settled
from tests.integration.agent_rig import ObjectStore, object_store
from tests.integration.lmi_rig import byte_model
from tests.selection import runs_all
from tests.unit.base.tars import Member, targz

from hostelry.domain.copy import CopyPhase, CopySpec
from hostelry.domain.model import ArtifactSource, SourceKind

pytestmark = pytest.mark.integration

SECRET = "{# the secret of another tenant #}"
# One of each kind for `make test`. Each ends three times before its copy is given up.
FIRST_ATTACKS = ("template-by-variable", "model-inside-and-up", "adapters", "own-code")


@dataclass(frozen=True)
class Neighbour:
    """Another tenant's folders on the same machine, as an attacker may guess them."""

    root: Path

    @property
    def template(self) -> Path:
        return self.root / "secret.jinja"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def model(self) -> Path:
        return self.root / "model"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as there:
        yield there


@pytest.fixture(scope="module")
def neighbour(tmp_path_factory: pytest.TempPathFactory) -> Neighbour:
    made = Neighbour(tmp_path_factory.mktemp("neighbour"))
    byte_model(made.root)
    made.template.write_text(SECRET)
    (made.cache / "adapter-of-another").mkdir(parents=True)
    (made.cache / "adapter-of-another" / "pages").write_text("weights")
    return made


def put(store: ObjectStore, name: str, archive: bytes) -> ArtifactSource:
    return ArtifactSource(uri=store.put(f"{name}.tar.gz", archive), kind=SourceKind.ARCHIVE)


def llm(root: Path, properties: str) -> bytes:
    """An archive of a model whose serving.properties says that."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(root, ".")
        info = tarfile.TarInfo("serving.properties")
        info.size = len(properties.encode())
        tar.addfile(info, io.BytesIO(properties.encode()))
    return packed.getvalue()


def test_paths_of_an_author_lead_out_of_no_model_folder(
    store: ObjectStore, neighbour: Neighbour, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """By serving.properties and by Environment. A good copy shows that the rig can serve."""
    up = "/".join([".."] * 12)
    attacks = {
        "template": (f"option.chat_template={neighbour.template}", {}),
        "template-up": (f"option.chat_template={up}{neighbour.template}", {}),
        "template-by-variable": ("", {"OPTION_CHAT_TEMPLATE": str(neighbour.template)}),
        "model": (f"option.model_id={neighbour.model}", {}),
        "model-up": ("", {"HF_MODEL_ID": f"{up}{neighbour.model}"}),
        "model-inside-and-up": ("", {"OPTION_MODEL_ID": f"/opt/ml/model/{up}{neighbour.model}"}),
        "adapters": (f"option.enable_lora=true\noption.adapters={up}{neighbour.root}", {}),
        "own-code": ("option.entryPoint=model.py", {}),
    }

    if not runs_all(pytestconfig):
        attacks = {name: attacks[name] for name in FIRST_ATTACKS}

    async def work() -> None:
        desired: list[CopySpec] = []
        for name, (properties, environment) in attacks.items():
            source = put(store, name, llm(neighbour.model, properties))
            desired.append(copy(name, "lmi:1", environment, source))
        cached = put(
            store, "good", llm(neighbour.model, f"option.adapter_cache_dir={neighbour.cache}")
        )
        desired.append(copy("good", "lmi:1", {"OPTION_ENABLE_LORA": "true"}, cached))
        for file in (it for it in neighbour.model.iterdir() if it.is_file()):
            store.put(f"llm/{file.name}", file.read_bytes())
        desired.append(copy("by-uri", "lmi:1", {"HF_MODEL_ID": "s3://models/llm/"}))
        found = await settled(there, desired)
        for name in attacks:
            status = found[name]
            assert status.phase is CopyPhase.FAILED, (name, status)
            assert "inside" in status.log_tail or "custom code" in status.log_tail, status
        for name in ("good", "by-uri"):
            assert found[name].phase is CopyPhase.READY, found[name]
        assert (neighbour.cache / "adapter-of-another" / "pages").read_text() == "weights"
        logs = [it.read_text() for it in there.folder().root.glob("copies/*/log")]
        assert len(logs) == len(desired)
        assert not any(SECRET in it for it in logs)

    with platform(tmp_path, store.url) as there:
        run(work())


ARCHIVES = {
    "implied-folders": ([Member(name=f"{n}/" * 500 + "f") for n in range(60)], "64 are allowed"),
    "deep": ([Member(name="d/" * 200 + "f")], "folders deep"),
    "absolute": ([Member(name="/tmp/hostelry-hostile")], "absolute path"),
    "parent": ([Member(name="../../../hostelry-hostile")], "leaves the archive's folder"),
    "link": ([Member(name="l", kind=tarfile.SYMTYPE, link="/etc")], "a symbolic link"),
    "hard-link": ([Member(name="l", kind=tarfile.LNKTYPE, link="/etc/passwd")], "a hard link"),
    "device": ([Member(name="d", kind=tarfile.CHRTYPE)], "a character device"),
}  # fmt: skip


def test_an_archive_that_is_a_trap_fails_its_copy_and_leaves_nothing(
    store: ObjectStore, tmp_path: Path
) -> None:
    async def work() -> None:
        desired = [
            copy(name, "hostelry/drill:1", {}, put(store, name, targz(members)))
            for name, (members, _) in ARCHIVES.items()
        ]
        found = await settled(there, desired)
        for name, (_, reason) in ARCHIVES.items():
            assert found[name].phase is CopyPhase.FAILED, (name, found[name])
            assert reason in str(found[name].reason), found[name].reason
        left = [it for it in there.folder().cache.rglob("*") if it.is_dir()]
        assert len(left) < 50, "nothing of them stays in the cache"

    with platform(tmp_path, store.url) as there:
        run(work())
    assert list(tmp_path.rglob("hostelry-hostile")) == []
