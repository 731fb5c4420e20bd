"""A SOURCE argument, the files found there, its adapters, and names derived from it. Pure."""

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from enum import Enum

import msgspec
from msgspec.structs import replace

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.artifacts.files import ARCHIVE_SUFFIXES, FoundFile

NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
ENVIRONMENT_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,1023}")
# Spellings of Latin letters that are not a base letter with marks.
SPELLED = str.maketrans(
    {"ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O"}
    | {"ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "TH"}
)
SUFFIXES = (
    ".tar.gz", ".tgz", ".joblib", ".pkl", ".pickle", ".json", ".ubj", ".pt", ".pth",
    ".model",
)  # fmt: skip
MAX_NAME, MAX_VALUE = 63, 1024
DIGEST_LETTERS = 8
HEAD_BYTES = 4 * 1024 * 1024
TAIL_BYTES = 1024 * 1024
TEXT_BYTES = 4 * 1024 * 1024
# Small files that are read as text, because they decide the kind of the source.
TEXT_NAMES = (
    "config.json", "tokenizer_config.json", "adapter_config.json", "inference.py",
    "code/inference.py", "requirements.txt", "code/requirements.txt",
)  # fmt: skip
MODEL_SUFFIXES = (
    ".joblib", ".pkl", ".pickle", ".onnx", ".pt", ".pth", ".ubj", ".model", ".xgb", ".bst",
    ".gguf", ".safetensors",
)  # fmt: skip
# XGBoost's own file names have no suffix, or a suffix that other files share.
XGBOOST_NAMES = ("xgboost-model", "xgboost-model.json", "model.json", "xgboost-model.bin")
PATH_SUFFIXES = (
    *ARCHIVE_SUFFIXES, ".joblib", ".pkl", ".pickle", ".onnx", ".json", ".ubj", ".pt", ".pth",
    ".gguf", ".zip",
)  # fmt: skip
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
S3_URI = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(.+)")
IMAGE = re.compile(r"[a-z0-9][a-z0-9._:/@-]*", re.IGNORECASE)
CONFIG = "adapter_config.json"


def valid_name(text: str) -> str:
    """The most similar name that AWS allows, or "model" if nothing of `text` is left."""
    plain = re.sub(r"[^a-zA-Z0-9]+", "-", _latin(text)).strip("-")[:MAX_NAME].strip("-")
    return plain or "model"


def _latin(text: str) -> str:
    """`text` without the marks on Latin letters. Other letters stay."""
    parts = unicodedata.normalize("NFKD", text.translate(SPELLED))
    return "".join(it for it in parts if not unicodedata.combining(it))


def _loses_letters(text: str) -> bool:
    """True if `valid_name` drops a letter or digit of `text`, such as one of another script."""
    return any(it.isalnum() and not it.isascii() for it in _latin(text))


def default_name(given: str) -> str:
    """The name for a source without --name. Raises UsageError if Latin letters cannot spell it."""
    last = _last_part(given)
    if _loses_letters(last):
        raise UsageError(
            f"{last[:MAX_NAME]!r} has letters that SageMaker's names cannot have: give --name"
        )
    return valid_name(last)


def source_name(given: str) -> str:
    """The name for an adapter from its source. A digest replaces letters that are not allowed."""
    last = _last_part(given)
    return add_digest(valid_name(last), last) if _loses_letters(last) else valid_name(last)


def _last_part(given: str) -> str:
    """The last part of a source's path without its suffix."""
    path = given.partition("@sha256:")[0].rstrip("/")
    last = path.rpartition("/")[2].partition(":")[0]
    suffix = next((it for it in SUFFIXES if last.endswith(it)), "")
    return last.removesuffix(suffix)


def check_name(option: str, name: str) -> None:
    """Raise UsageError for a name that AWS does not allow. The error proposes a valid name."""
    if NAME.fullmatch(name) is None:
        raise UsageError(
            f"{option} {name!r} is not a valid name: up to 63 letters, digits and single hyphens "
            f"between them, for example {valid_name(name)}"
        )


def add_digest(name: str, *parts: str) -> str:
    """`name` with a digest of `parts`. Equal parts give equal names."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGEST_LETTERS]
    return f"{name[: MAX_NAME - DIGEST_LETTERS - 1].rstrip('-')}-{digest}"


def adapter_name(name: str, adapter: str) -> str:
    """The name of an adapter's component. A digest replaces forbidden and surplus letters."""
    whole = f"{name}-{valid_name(adapter)}"
    is_whole = len(whole) <= MAX_NAME and not _loses_letters(adapter)
    return whole if is_whole else add_digest(whole, name, adapter)


def read_environment(given: list[str]) -> dict[str, str]:
    """The variables of --env K=V. Raises TerminalError."""
    found: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or ENVIRONMENT_NAME.fullmatch(name) is None:
            raise UsageError(f"--env {pair[:80]!r} is not NAME=VALUE")
        if len(value) > MAX_VALUE:
            raise UsageError(
                f"--env {name} has {len(value)} characters; SageMaker allows {MAX_VALUE}"
            )
        found[name] = value
    return found


class Origin(Enum):
    """The kind of place where a source is."""

    FOLDER = "folder"
    FILE = "file"
    ARCHIVE = "archive"  # a local .tar.gz
    PREFIX = "S3 prefix"
    OBJECT = "archive in S3"
    HUB = "hub"  # weights that the model server downloads
    IMAGE = "image"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A source with its files.

    `heads` has the first and last bytes of possible model files, and `texts` the content of small
    files. `archive` is a local archive, `uri` the address of a source in S3, and `revision` the
    commit of a hub model. `left_out` has files that are not deployed.
    """

    given: str
    place: Origin
    files: tuple[FoundFile, ...] = ()
    heads: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    texts: Mapping[str, str] = msgspec.field(default_factory=dict)
    archive: FoundFile | None = None
    uri: str = ""
    revision: str = ""
    left_out: tuple[FoundFile, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the files."""
        return tuple(it.name for it in self.files)

    @property
    def num_bytes(self) -> int:
        """The total size of the files."""
        return sum(it.size_bytes for it in self.files)


def is_model_name(name: str) -> bool:
    """Whether a file of that name may be a model, which its first bytes decide."""
    last = name.rpartition("/")[2]
    return last.endswith(MODEL_SUFFIXES) or last in XGBOOST_NAMES


class SourceText(msgspec.Struct, frozen=True):
    """A parsed SOURCE: the kind of its place, and its path, URI, id or image."""

    place: Origin
    value: str


def read_source(text: str, *, exists: bool, is_folder: bool, as_image: bool) -> SourceText:
    """Classify SOURCE. `exists` is true if it is an existing path. Raises TerminalError.

    Tries a path first, then S3, images by their registry or tag, and ids of the hub.
    """
    if as_image or text.startswith("docker://"):
        return _image(text.removeprefix("docker://"))
    if text.startswith("s3://"):
        return _s3(text)
    if text.startswith("hf://"):
        return _hub(text.removeprefix("hf://"))
    if exists and is_folder:
        return SourceText(Origin.FOLDER, text)
    if exists:
        return SourceText(Origin.ARCHIVE if text.endswith(ARCHIVE_SUFFIXES) else Origin.FILE, text)
    if "://" in text:
        raise TerminalError(f"{text}: sources are paths, s3://, hf:// and docker://")
    if _is_path(text):
        raise TerminalError(f"{text} is not there: no such file or folder")
    return _without_path(text)


def _without_path(text: str) -> SourceText:
    if _has_registry(text) or ":" in text.rpartition("/")[2] or "@sha256:" in text:
        return _image(text)
    if HUB_ID.fullmatch(text):
        return _hub(text)
    raise TerminalError(
        f"{text!r} is not a path here, an S3 address (s3://BUCKET/PREFIX/), a model of the hub "
        "(ORGANISATION/NAME) or an image (REGISTRY/NAME:TAG): give one of these, or --as image"
    )


def _s3(text: str) -> SourceText:
    if S3_URI.fullmatch(text) is None:
        raise TerminalError(f"{text} is not an S3 address: write s3://BUCKET/PREFIX/ or an archive")
    if text.endswith(ARCHIVE_SUFFIXES):
        return SourceText(Origin.OBJECT, text)
    return SourceText(Origin.PREFIX, text.rstrip("/") + "/")


def _has_registry(text: str) -> bool:
    first, slash, _ = text.partition("/")
    return bool(slash) and ("." in first or ":" in first or first == "localhost")


def _is_path(text: str) -> bool:
    return (
        text.startswith((".", "/", "~"))
        or text.endswith(("/", *PATH_SUFFIXES))
        or (text.count("/") > 1 and "." not in text.partition("/")[0] and ":" not in text)
    )


def _hub(text: str) -> SourceText:
    if HUB_ID.fullmatch(text) is None:
        raise TerminalError(f"{text!r} is not a model of the hub: write ORGANISATION/NAME")
    return SourceText(Origin.HUB, text)


def _image(text: str) -> SourceText:
    if IMAGE.fullmatch(text) is None or len(text) > 255:
        raise TerminalError(f"{text[:80]!r} is not the name of an image")
    return SourceText(Origin.IMAGE, text)


class AdapterSource(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter: files to pack into an archive, or `uri`, an archive in S3."""

    name: str
    files: tuple[FoundFile, ...] = ()
    uri: str = ""
    etag: str = ""

    @property
    def num_bytes(self) -> int:
        """The total size of its files."""
        return sum(it.size_bytes for it in self.files)


def adapters_in(found: Found) -> tuple[AdapterSource, ...]:
    """The adapters in a source, sorted by name. Raises TerminalError if it has none."""
    if found.place in (Origin.PREFIX, Origin.OBJECT):
        return _archives(found)
    if CONFIG in found.names:
        return (AdapterSource(name=source_name(found.given), files=found.files),)
    folders = sorted({it.rpartition("/")[0] for it in found.names if it.endswith("/" + CONFIG)})
    named: Mapping[str, str] = {it.rpartition("/")[2]: it for it in folders}
    if len(named) < len(folders):
        raise TerminalError(f"{found.given} has two adapters of one name: {', '.join(folders)}")
    if not folders:
        shown = ", ".join(found.names[:8]) or "nothing"
        raise UsageError(
            f"--adapters {found.given} has {shown}; looked for {CONFIG}, or folders with it"
        )
    return tuple(
        AdapterSource(name=name, files=_below(found, folder)) for name, folder in named.items()
    )


def _below(found: Found, folder: str) -> tuple[FoundFile, ...]:
    prefix = folder + "/"
    return tuple(
        replace(file, name=file.name.removeprefix(prefix))
        for file in found.files
        if file.name.startswith(prefix)
    )


def _archives(found: Found) -> tuple[AdapterSource, ...]:
    if found.place is Origin.OBJECT:
        return (AdapterSource(name=source_name(found.uri), uri=found.uri, etag=found.revision),)
    archives = [it for it in found.files if it.name.endswith(ARCHIVE_SUFFIXES)]
    if not archives:
        raise UsageError(
            f"--adapters {found.given} has no .tar.gz: an adapter in S3 is an archive of its "
            f"{CONFIG} and adapter_model.safetensors"
        )
    return tuple(
        AdapterSource(name=source_name(file.name), uri=found.uri + file.name, etag=file.etag)
        for file in archives
    )
