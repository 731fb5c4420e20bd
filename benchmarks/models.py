"""The model that a benchmark runs on: the demo model, a given one, or a tiny random one."""

from pathlib import Path

from hostelry.cli.demo import demo_model_folder


def model_folder(given: Path | None, scratch: Path, *, tiny: bool) -> Path:
    """`given`, else the demo model in the user's cache, else a tiny random Llama in `scratch`."""
    if given is not None:
        return given
    return tiny_model(scratch / "tiny") if tiny else demo_model_folder()


def tiny_model(folder: Path) -> Path:
    """A random Llama of two layers that reads bytes, with its tokenizer."""
    # These imports need transformers, which a run with an existing model does not need.
    from tests.models import tiny_llama
    from tests.unit.containers.lmi.tiny import write_tokenizer

    tiny_llama(folder, vocab_size=259)
    write_tokenizer(folder)
    return folder
