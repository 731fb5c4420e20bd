"""Adapters from the Hugging Face hub, or from its local cache with HF_HUB_OFFLINE."""

import shutil
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from hostelry.engine.lora.errors import AdapterError

_FILES = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
_CODE = "model.py"


class HubFetcher:
    """The `sources.Fetcher` of `hf://organisation/name[/folder][@revision]`.

    Uses the operator's HF_HOME, HF_TOKEN and HF_HUB_OFFLINE. `cache_folder` replaces HF_HOME's hub
    cache. `is_offline` reads the cache only.
    """

    def __init__(self, cache_folder: Path | None = None, *, is_offline: bool = False) -> None:
        self._cache_folder = cache_folder
        self._is_offline = is_offline

    def fetch(self, uri: str, into: Path) -> None:
        """Copy the adapter's files into `into`. Raises AdapterError with the reason."""
        repository, folder, revision = parse_hub_uri(uri)
        prefix = f"{folder}/" if folder else ""
        try:
            snapshot = snapshot_download(
                repository,
                revision=revision,
                allow_patterns=[f"{prefix}{it}" for it in (*_FILES, _CODE)],
                cache_dir=self._cache_folder,
                local_files_only=self._is_offline,
            )
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
            raise AdapterError(f"the hub does not give it: {error}") from error
        if (Path(snapshot) / folder / _CODE).exists():
            raise AdapterError(
                f"it holds {_CODE}; an adapter's code runs from a folder of this machine only"
            )
        for name in _FILES:
            path = Path(snapshot) / folder / name
            if path.is_file():
                shutil.copyfile(path, into / name)


def parse_hub_uri(uri: str) -> tuple[str, str, str | None]:
    """The repository, the folder in it (perhaps empty) and the revision. Raises AdapterError."""
    place, _, revision = uri.removeprefix("hf://").partition("@")
    parts = place.split("/")
    if len(parts) < 2 or any(part in ("", ".", "..") for part in parts):
        raise AdapterError(f"{uri!r} is not of the form hf://organisation/name[/folder][@revision]")
    return "/".join(parts[:2]), "/".join(parts[2:]), revision or None
