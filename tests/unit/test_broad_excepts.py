"""Broad excepts stand only at the edges that this file lists."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.cases import case, cases

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "hostelry"
BROAD = {"Exception", "BaseException", "BaseExceptionGroup", "ExceptionGroup"}
# The outermost edges: each file that catches everything, and where the failure goes.
EDGES = {
    "base/concurrency.py": "each caller of a group gets it; a repeated step is logged",
    "cells/router.py": "answered with 500 and a request id",
    "console/live.py": "the view shows the failure",
    "containers/graph/function_program.py": "reported as the failure of the author's function",
    "containers/lmi/code/author_hooks.py": "reported as the failure of the author's code",
    "containers/lmi/code/program.py": "reported as the failure of the author's code",
    "containers/lmi/engine/loop.py": "the request, call or adapter is answered with the cause",
    "containers/lmi/engine/process.py": "reported as the reason why the engine's process ends",
    "containers/lmi/http/invoke.py": "the last event of the answer has the cause",
    "containers/lmi/vllm/async_llm.py": "vLLM's errors have no class: reported with the adapter",
    "containers/lmi/vllm/process.py": "reported as the reason why the engine's process ends",
    "containers/lmi/vllm/requests.py": "vLLM's errors have no class: the request fails with it",
    "containers/predictive/worker/model_serving.py": "reported as the author's code's failure",
    "engine/engine.py": "ends the requests that a step cannot compute",
    "engine/lora/loads.py": "reported with the adapter that was loaded",
    "engine/lora/uploads.py": "reported with the adapter that was loaded",
    "engine/request_state.py": "ends the request that a step cannot compute",
    "engine/runner/follower.py": "ends the leader's step",
    "engine/runner/leader.py": "ends the step",
    "gateway/dispatcher.py": "answered with 500 and a request id",
    "gateway/mirroring/port.py": "logged; the client's request goes to production",
    "http1/reply.py": "raised by the task that passes the answer on",
    "jobs/http.py": "answered with 500 and a request id",
    "metrics/persistence/shared.py": "logged; the next commit of the journal follows",
    "control/app.py": "answered with 500 and a request id",
    "services/ray_driver.py": "the call of control to Ray gets the failure",
    "s3/proxy.py": "answered with 500 and a request id",
}


def names_of(node: ast.expr | None) -> set[str]:
    """The classes of an `except`. Without a class it catches BaseException."""
    if node is None:
        return {"BaseException"}
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return {ast.unparse(part).rpartition(".")[2] for part in parts}


def swallows(handler: ast.ExceptHandler) -> bool:
    """Whether an `except` of everything ends otherwise than by raising it on."""
    last = handler.body[-1]
    passes_on = isinstance(last, ast.Raise) and last.exc is None
    return bool(names_of(handler.type) & BROAD) and not passes_on


def broad_lines(source: str) -> Iterator[int]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler) and swallows(node):
            yield node.lineno
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            caught = {ast.unparse(argument) for argument in node.args}
            if caught & BROAD:
                yield node.lineno


@cases(
    "source, count",
    case("Exception", "try: f()\nexcept Exception: g()", 1),
    case("without a class", "try: f()\nexcept: g()", 1),
    case("one of two", "try: f()\nexcept (OSError, BaseException): g()", 1),
    case("of a group", "try: f()\nexcept* Exception: g()", 1),
    case("suppressed", "with contextlib.suppress(Exception): f()", 1),
    case("raised on", "try: f()\nexcept BaseException:\n g()\n raise", 0),
    case("a narrow one", "try: f()\nexcept OSError: g()", 0),
)
def test_what_counts_as_broad(source: str, count: int) -> None:
    assert len(list(broad_lines(source))) == count


def test_only_the_listed_edges_catch_everything() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any(broad_lines(path.read_text(encoding="utf-8")))
    }
    assert found == set(EDGES)
