"""Configurations of Triton's models are read, or refused with a line and a reason."""

from pathlib import Path

from tests.fuzz.conftest import Cases, assert_short
from tests.fuzz.mutation import mutated_text

from hostelry.base.errors import TerminalError
from hostelry.containers.triton.model_folder import (
    ModelFolder,
    check_folder,
    choose_model,
    find_needed,
)
from hostelry.containers.triton.text_format import TextFormatError, parse_message

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "triton_ensemble" / "models"
TEXTS = tuple(path.read_text() for path in sorted(EXAMPLES.glob("*/config.pbtxt")))
WORDS = (
    *"{}<>[]:,;'\"#\\", "name", "platform", "backend", '"ensemble"', "step", "model_name", "-1",
    "ensemble_scheduling {", "\n", "\x00", "\u00b2", "{" * 40, "[" * 40, "a: " * 40,
)  # fmt: skip


def test_a_configuration_is_read_or_refused_with_its_line(cases: Cases) -> None:
    for random in cases(2_000):
        folders = []
        for number in range(random.randrange(1, 4)):
            text = mutated_text(random.choice(TEXTS), random, WORDS)
            try:
                config, fault = parse_message(text), ""
            except TextFormatError as error:
                assert_short(error)
                config, fault = None, str(error)
            assert fault.startswith("line ") is (config is None)
            versions = {"1": frozenset({"model.py"})} if random.random() < 0.8 else {}
            folders.append(
                ModelFolder(
                    name=("clusters", "scale", "classify")[number],
                    config=config,
                    config_fault=fault,
                    versions=versions,
                )
            )
        try:
            chosen = choose_model(folders, "", random.random() < 0.5)
            used = find_needed(chosen, folders)
            for each in used:
                check_folder(each, {"python"}, "/t")
        except TerminalError as error:
            assert_short(error)
        else:
            assert used[0] is chosen
            assert len({it.name for it in used}) == len(used)
