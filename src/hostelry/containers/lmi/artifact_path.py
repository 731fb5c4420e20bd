"""Untrusted paths by a model's author: in serving.properties, an Environment or the model's files.

They are relative to the model folder and must stay in it after links are resolved. The container's
/opt/ml/model is the model folder.
"""

from pathlib import Path, PurePosixPath

CONTAINER_MODEL_DIR = PurePosixPath("/opt/ml/model")
MAX_PATH_BYTES = 1024
MAX_NAME_BYTES = 255


def relative_path(text: str) -> PurePosixPath | None:
    """`text` as a path below the model folder. None if it leads elsewhere."""
    path = PurePosixPath(text)
    if path.is_relative_to(CONTAINER_MODEL_DIR):
        path = path.relative_to(CONTAINER_MODEL_DIR)
    sizes = [len(part.encode(errors="replace")) for part in path.parts]
    if sum(sizes) + len(sizes) > MAX_PATH_BYTES or max(sizes, default=0) > MAX_NAME_BYTES:
        return None
    outside = path.is_absolute() or ".." in path.parts or "\0" in text
    return None if outside else path


def path_inside(text: str, folder: Path) -> Path | None:
    """`text` as a path below `folder`, which need not exist. None if it leads outside."""
    path = relative_path(text)
    if path is None:
        return None
    found = folder / path
    try:
        real = found.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return None
    return found if any(real.is_relative_to(root) for root in _roots(folder)) else None


def _roots(folder: Path) -> list[Path]:
    """The folder, and for a download from the hub the folder of the files it links to.

    Source: huggingface_hub's cache, models--ORGANISATION--NAME/{blobs,snapshots/REVISION}.
    """
    real = folder.resolve()
    from_hub = real.parent.name == "snapshots" and real.parent.parent.name.startswith("models--")
    return [real, real.parent.parent / "blobs"] if from_hub else [real]
