"""Lines of text that models, authors and clients wrote end at newlines, and at nothing else."""

import ast
import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.printable import printable_stream
from hostelry.cli.check_runner import one_line
from hostelry.cli.explain import _unplaced_lines
from hostelry.cli.logs import LinePrinter, last_lines, new_lines
from hostelry.cli.status_text import reason_lines
from hostelry.cli.top.document import token_counts
from hostelry.comparison.answers import measure_distance
from hostelry.console.views.endpoint import tail
from hostelry.containers.lmi.request.body import csv_inputs
from hostelry.containers.lmi.settings.options import logical_lines
from hostelry.containers.predictive.worker.bodies import decode_json_lines
from hostelry.containers.predictive.worker.default_huggingface import from_csv
from hostelry.containers.predictive.worker.default_tensorflow import to_predict_body
from hostelry.containers.predictive.worker.defaults import read_csv
from hostelry.domain.trouble import find_cause, server_lines
from hostelry.fleet.launch.container_arguments import last_lines as engine_s_last_lines
from hostelry.fleet.launch.copy_log import CopyLog
from hostelry.graph.content import read_body

ODD = "a\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029z"  # breaks for `str.splitlines`, besides \r and \n
JSON_LINE = json.dumps(ODD, ensure_ascii=False)
PAGE = f'vllm:generation_tokens_total{{model_name="{ODD}",component="c",copy="1"}} 5\n'
EVENTS = "".join(f'data: {{"choices": [{{"delta": {{"content": "{it}"}}}}]}}\n\n' for it in "xyz")
AB = ("\u2028a", "\u2028b")
SOURCE = Path(__file__).parents[2] / "src" / "hostelry"
LONG = "x" * 200_000  # more than the csv module takes in a cell by default
HINT = re.compile("splitlines|import csv")
# The files that call `splitlines`, and the kind of their input.
BYTES = "bytes, whose lines end at line feeds and carriage returns only"
SYSTEM = "text of the kernel, or of a program of the machine"
CUTTING = {
    "base/pip_settings.py": "the operator's settings and requirements.txt, as pip reads them",
    "base/proc.py": SYSTEM,
    "cli/deploy/run.py": SYSTEM,
    "cli/doctor/probes.py": SYSTEM,
    "cli/logs.py": BYTES,
    "base/printable.py": "what a terminal would break into lines",
    "containers/predictive/model_table.py": SYSTEM,
    "containers/predictive/requirements.py": SYSTEM,
    "engine/kernels/native/library.py": SYSTEM,
    "fleet/host/cgroups.py": SYSTEM,
    "fleet/host/usage.py": SYSTEM,
    "fleet/launch/container_arguments.py": BYTES,
    "fleet/launch/copy_log.py": BYTES,
    "graph/content.py": BYTES,
}


def shown(lines: list[str]) -> list[str]:
    """The lines that a terminal gets of those which a command prints."""
    terminal = io.StringIO()
    print("\n".join(lines), file=printable_stream(terminal), end="")
    return terminal.getvalue().split("\n")


def unplaced(words: str) -> list[str]:
    """The output of `explain` about an unplaced component, after its heading."""
    component = {"name": "c", "placement_note": None}
    place = {"component": "c", "count": 1, "wanted": 1, "obstacle": None, "would_help": None}
    found = _unplaced_lines({"components": [component]}, {**place, "why_not": words})
    return shown(found)[1:]


def in_file(read: Callable[[Path], Any], path: Path) -> Any:
    path.write_bytes(f"{ODD}\r\nlast\n".encode())
    return read(path)


@cases(
    "read, found",
    case("status indents each line that a terminal makes of a reason",
        lambda _: shown(reason_lines(f"{ODD}\nlast", "  ")), ["  a", "  ", "  z", "  last"]),
    case("explain indents each line that a terminal makes of a reason",
        lambda _: unplaced(f"{ODD}\nlast"), ["    a", "    ", "    z", "    last"]),
    case("a log has the lines that its process wrote",
        lambda path: in_file(lambda it: last_lines(it, 2), path), [ODD, "last"]),
    case("a log that is followed has the lines that its process wrote",
        lambda path: in_file(lambda it: new_lines(it, "t", {"t": 0}), path), [ODD, "last"]),
    case("the tail of a copy's log counts the lines that its server wrote",
        lambda path: in_file(lambda it: CopyLog(it).tail(2), path), f"{ODD}\nlast"),
    case("the console shows a log's lines", lambda _: tail(f"{ODD}\nlast"), [ODD, "last"]),
    case("the console shows no line of an empty log", lambda _: tail(""), []),
    case("a failure's cause has the lines of the server", lambda _: server_lines(f"{ODD}\nlast"),
        [ODD, "last"]),
    case("a failure's cause has the whole last line that its reason quotes",
        lambda _: find_cause(f"It ended. Last log lines: first\n{ODD}"), f"It ended.\n{ODD}"),
    case("a container engine's message has its last four lines",
        lambda _: engine_s_last_lines(f"1\n2\n3\n{ODD}".encode()), f"1 2 3 {ODD}"),
    case("a notebook's error is the last line of its text",
        lambda _: one_line("Error", f"first\n{ODD}\n"), f"Error: {ODD}"),
    case("the label of a metric does not end its line", lambda _: token_counts(PAGE),
        {("c", "1"): 5.0}),
    case("a value of serving.properties does not end its line",
        lambda _: logical_lines(f"x={ODD}\ny=1"), [f"x={ODD}", "y=1"]),
    case("a JSON line of TensorFlow's container may hold any character",
        lambda _: to_predict_body(f'{JSON_LINE}\r\n{JSON_LINE}\n', "application/jsonlines"),
        json.dumps({"instances": [json.loads(JSON_LINE)] * 2})),
    case("a cell of TensorFlow's CSV may hold any character but a newline",
        lambda _: to_predict_body(f"{ODD}, b\r\n1, 2\r\n\r\n", "text/csv"),
        json.dumps({"instances": [[ODD, "b"], [1.0, 2.0]]})),
    case("a JSON line of a framework's server may hold any character",
        lambda _: list(decode_json_lines(f"{JSON_LINE}\r\n{JSON_LINE}\n")),
        [json.loads(JSON_LINE)] * 2),
    case("an event counts although its text has a line separator",
        lambda _: measure_distance(*(EVENTS.replace("y", it).encode() for it in AB)).exact, False),
)  # fmt: skip
def test_a_line_ends_at_newlines_only(
    tmp_path: Path, read: Callable[[Path], Any], found: object
) -> None:
    assert read(tmp_path / "log") == found


@cases(
    "several, printed",
    case("each line of several logs has its title", True, "c| a\nc| \nc| z\n"),
    case("a line of one log has no title", False, "a\n\nz\n"),
)
def test_a_followed_line_that_a_terminal_breaks_keeps_its_title(
    capsys: pytest.CaptureFixture[str], several: bool, printed: str
) -> None:
    LinePrinter(as_json=False, several=several).line("c", "a\u2028\u2029z", follows=True)
    assert capsys.readouterr().out == printed


@cases(
    "read, found",
    case("of a graph", lambda text: read_body(text.encode(), "text/csv"), [[LONG, 1]]),
    case("of the LLM server", lambda text: csv_inputs(f"inputs,n\n{text}"), [LONG]),
    case("of Hugging Face's images", lambda text: from_csv(f"inputs,n\n{text}"),
        {"inputs": [LONG]}),
    case("of AutoGluon's", lambda text: read_csv(f"\n{text}\n"), [[LONG, "1"]]),
)  # fmt: skip
def test_a_cell_may_be_a_document(read: Callable[[str], Any], found: object) -> None:
    limit = csv.field_size_limit()
    assert limit > len(LONG)
    assert read(f"{LONG},1\n") == found


def calls(path: Path) -> set[str]:
    """The functions and methods that a file calls, by their names."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {ast.unparse(it.func) for it in nodes if isinstance(it, ast.Call)}


def test_text_of_others_is_not_cut_by_splitlines_nor_its_cells_limited() -> None:
    files = [it for it in SOURCE.rglob("*.py") if HINT.search(it.read_text(encoding="utf-8"))]
    found = {str(it.relative_to(SOURCE)): calls(it) for it in files}
    cutting = {name for name, its in found.items() if any(it.endswith(".splitlines") for it in its)}
    assert cutting == set(CUTTING)
    readers = {name for name, its in found.items() if its & {"csv.reader", "csv.DictReader"}}
    limiting = "from hostelry.containers.predictive.worker.bodies import"  # which sets the limit
    unlimited = {
        name
        for name in readers
        if "csv.field_size_limit" not in found[name]
        and limiting not in (SOURCE / name).read_text(encoding="utf-8")
    }
    assert unlimited == {"containers/lmi/code/djl_python/encode_decode.py"}  # inputs.py limits it
