"""Models of the Hugging Face hub. The agent downloads them, so that authors' code gets no token.

Calls block. The hub's client is imported on first use, and reads the operator's HF_* variables.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from hostelry.domain.model import ArtifactSource
from hostelry.fleet.artifacts.objects import ObjectFacts
from hostelry.fleet.artifacts.protocol import ArtifactError, ArtifactUnavailableError

SCHEME = "hf://"
SAFE_WEIGHTS = ".safetensors"
PICKLED_WEIGHTS = frozenset({".bin", ".ckpt", ".pkl", ".pt", ".pth"})
# Weights of frameworks that no server here reads, and their folders.
OTHER_WEIGHTS = frozenset(
    {".gguf", ".h5", ".mlmodel", ".msgpack", ".onnx", ".onnx_data", ".ot", ".tflite"}
)
OTHER_FOLDERS = frozenset({"coreml", "onnx", "openvino"})


def is_hub(source: ArtifactSource) -> bool:
    """Whether the source is a model of the hub: hf://organisation/name[@revision]."""
    return source.uri.startswith(SCHEME)


class HubModels:
    """The hub at `endpoint`, by default the operator's. Thread-safe."""

    def __init__(self, endpoint: str | None = None) -> None:
        self._endpoint = endpoint

    def list(self, uri: str, token: str | None) -> list[ObjectFacts]:
        """The files of the model that its server needs, in the commit that its revision names now.

        The bucket of each is the model's id, its etag the commit. Without `token` the operator's
        token is used. Raises ArtifactError, or ArtifactUnavailableError.
        """
        from huggingface_hub import HfApi

        model_id, _, revision = uri.removeprefix(SCHEME).partition("@")
        with _translate_errors(uri):
            info = HfApi(endpoint=self._endpoint).model_info(
                model_id, revision=revision or None, files_metadata=True, token=token
            )
        files = {it.rfilename: it.size or 0 for it in info.siblings or ()}
        return [
            ObjectFacts(bucket=model_id, key=name, size_bytes=files[name], etag=info.sha or "")
            for name in needed_files(files)
        ]

    def download(
        self,
        objects: Sequence[ObjectFacts],
        into: Path,
        token: str | None,
        check_cancelled: Callable[[], None],
    ) -> None:
        """Download the files into the folder, which exists. Raises as `list`."""
        from huggingface_hub import hf_hub_download

        for facts in objects:
            check_cancelled()
            with _translate_errors(f"{SCHEME}{facts.bucket}"):
                hf_hub_download(
                    facts.bucket,
                    facts.key,
                    revision=facts.etag,
                    local_dir=into,
                    token=token,
                    endpoint=self._endpoint,
                )
        shutil.rmtree(into / ".cache", ignore_errors=True)  # the client's notes


def needed_files(names: Iterable[str]) -> list[str]:
    """The files of a model without hidden ones and without weights that no server here reads.

    Pickled weights are left out if there are safe ones.
    """
    paths = sorted(map(PurePosixPath, names))
    has_safe_weights = any(path.suffix == SAFE_WEIGHTS for path in paths)
    unneeded = OTHER_WEIGHTS | (PICKLED_WEIGHTS if has_safe_weights else frozenset())
    return [
        str(path)
        for path in paths
        if path.suffix not in unneeded
        and not path.name.startswith(".")
        and not OTHER_FOLDERS & set(path.parts[:-1])
    ]


@contextmanager
def _translate_errors(uri: str) -> Iterator[None]:
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    # The base class of its HTTP client's errors, from requests before version 1, then from httpx.
    client_error: type[Exception] = next(
        base
        for base in reversed(HfHubHTTPError.__mro__)
        if issubclass(base, Exception) and base.__name__ in ("RequestException", "HTTPError")
    )
    try:
        yield
    except HFValidationError as error:
        raise ArtifactError(f"{uri}: {error}") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        kind = ArtifactUnavailableError if status >= 500 or status == 429 else ArtifactError
        raise kind(f"the hub does not give {uri}: {error}") from error
    except (client_error, ConnectionError, TimeoutError, FileNotFoundError) as error:
        raise ArtifactUnavailableError(f"the hub does not answer for {uri}: {error}") from error
