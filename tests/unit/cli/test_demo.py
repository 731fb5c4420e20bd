import json
from pathlib import Path

import pytest
import typer

from hostelry.base.errors import TerminalError
from hostelry.cli.demo import demo_model_command, demo_model_folder, gguf_file


def test_the_weights_come_from_one_gguf_file_of_a_package() -> None:
    folder, name = gguf_file()
    assert (folder / name).stat().st_size > 90_000_000


def test_a_folder_with_something_in_it_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(TerminalError, match="not empty"):
        demo_model_command(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "keep"


@pytest.mark.slow
def test_the_cached_model_is_an_ordinary_hugging_face_folder() -> None:
    folder = demo_model_folder()
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["dtype"] == "bfloat16"
    assert {"model.safetensors", "tokenizer.json", "chat_template.jinja"} <= {
        path.name for path in folder.iterdir()
    }


def test_typer_accepts_the_command() -> None:
    app = typer.Typer()
    app.command()(demo_model_command)
    assert typer.main.get_command(app).params
