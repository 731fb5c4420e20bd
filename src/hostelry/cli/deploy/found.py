"""A SOURCE as it was found, as plain values: names, sizes, first bytes, small texts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from hostelry.cli.artifacts.object_order import FoundFile

HEAD_BYTES = 4 * 1024 * 1024
TAIL_BYTES = 1024 * 1024
TEXT_BYTES = 4 * 1024 * 1024
# Files that are read as text where they are small: they decide what the source is.
TEXT_NAMES = (
    "config.json", "tokenizer_config.json", "adapter_config.json", "inference.py",
    "code/inference.py", "requirements.txt", "code/requirements.txt",
)  # fmt: skip
MODEL_SUFFIXES = (
    ".joblib", ".pkl", ".pickle", ".onnx", ".pt", ".pth", ".ubj", ".model", ".xgb", ".bst",
    ".gguf", ".safetensors",
)  # fmt: skip
# XGBoost's own names have no suffix, or one that other files have too.
XGBOOST_NAMES = ("xgboost-model", "xgboost-model.json", "model.json", "xgboost-model.bin")


class Origin(Enum):
    """Where a source is."""

    FOLDER = "folder"
    FILE = "file"
    ARCHIVE = "archive"  # a local .tar.gz
    PREFIX = "S3 prefix"
    OBJECT = "archive in S3"
    HUB = "hub"  # weights that the model server downloads
    IMAGE = "image"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A source as it was found.

    `heads` has the first and last bytes of files that may be models, `texts` small files whole.
    `archive` is a local archive itself, `uri` an S3 source's address, `revision` a hub model's
    commit. `left_out` are files that are not deployed.
    """

    given: str
    place: Origin
    files: tuple[FoundFile, ...] = ()
    heads: Mapping[str, bytes] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    archive: FoundFile | None = None
    uri: str = ""
    revision: str = ""
    left_out: tuple[FoundFile, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its files."""
        return tuple(it.name for it in self.files)

    @property
    def num_bytes(self) -> int:
        """The size of its files together."""
        return sum(it.size_bytes for it in self.files)


def is_model_name(name: str) -> bool:
    """Whether a file of that name may be a model whose first bytes say more."""
    last = name.rpartition("/")[2]
    return last.endswith(MODEL_SUFFIXES) or last in XGBOOST_NAMES
