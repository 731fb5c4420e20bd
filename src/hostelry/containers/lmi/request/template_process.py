"""Templates in jinja2's sandbox, with a request's template in a process that can be killed.

A hostile template can compute for hours or take all memory, and a sandbox may have holes. The
process renders one template, within limits of time, memory and output, without environment.
Source: the conventions of transformers' chat templates (variables, raise_exception, strftime_now,
tojson, trimmed blocks).
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from hostelry.base.clock import Clock, ManualClock
from hostelry.base.json import convert
from hostelry.containers.lmi.refusal import Cause, Refusal, bad_request


class GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's text for training. Here its body is plain text."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own protocol

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """The nodes between the two tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class PlainNamespace(Namespace):
    """A template's namespace, without the names that reach Python's own attributes."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        for name in dict(*args[1:], **kwargs):
            check_name(name)
        Namespace.__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        check_name(name)
        super().__setitem__(name, value)


def check_name(name: object) -> None:
    """Raise SecurityError for a name with an underscore first."""
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}, which begins with an underscore")


def compile_template(source: str, clock: Clock) -> Template:
    """The template in an environment with Hugging Face's functions and filters."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", GenerationBlock],
    )

    def strftime_now(form: str) -> str:
        return datetime.fromtimestamp(clock.now()).strftime(form)  # noqa: DTZ006 - local time, as the convention has it

    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    environment.globals["namespace"] = PlainNamespace
    return environment.from_string(source)


def raise_exception(message: str) -> str:
    """Function for templates that reject their input."""
    raise TemplateError(message)


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """`value` as JSON, without jinja2's HTML escapes."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class RenderLimits(msgspec.Struct, frozen=True):
    """Bounds on rendering one template of a request. At most `at_once` such processes run."""

    render_s: float = 2.0
    start_s: float = 10.0
    memory_bytes: int = 256 << 20
    output_bytes: int = 4 << 20
    at_once: int = 2


class _Task(msgspec.Struct, frozen=True):
    """The template to render. `now` is the time of `strftime_now`."""

    template: str
    variables: dict[str, Any]
    now: float
    limits: RenderLimits


class _Rendered(msgspec.Struct, frozen=True):
    """The text, or the reason of a failure."""

    text: str = ""
    error: str = ""


LIMITS = RenderLimits()
_running = threading.BoundedSemaphore(LIMITS.at_once)


def render_apart(
    template: str, variables: Mapping[str, Any], clock: Clock, limits: RenderLimits = LIMITS
) -> str:
    """The text of `template`. Blocks, so call it in a thread. Raises Refusal."""
    task = _Task(template, dict(variables), clock.now(), limits)
    if not _running.acquire(timeout=limits.start_s):
        raise Refusal(
            Cause.QUEUE_FULL,
            f"{limits.at_once} templates of requests are being rendered; try again later",
            "chat_template",
            retry_after_s=limits.render_s,
        )
    try:
        answer = _ask(msgspec.msgpack.encode(task), limits)
    finally:
        _running.release()
    if answer.error:
        raise bad_request(f"chat_template: {answer.error}", "chat_template")
    return answer.text


def _ask(task: bytes, limits: RenderLimits) -> _Rendered:
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "hostelry.containers.lmi.request.template_process"],
            input=task,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            cwd="/",
            timeout=limits.start_s + limits.render_s,
            check=False,
        )
        return convert(msgspec.msgpack.decode(done.stdout), _Rendered)
    except subprocess.TimeoutExpired:
        return _Rendered(error=f"rendering took more than {limits.render_s:g} s")
    except msgspec.DecodeError:
        return _Rendered(
            error=f"rendering took more than {limits.render_s:g} s, or more than "
            f"{limits.memory_bytes >> 20} MiB of memory; make the template simpler"
        )


def _confine(limits: RenderLimits) -> None:
    """Bound this process's time and memory. It can then not write files or start processes."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most_s = int(used.ru_utime + used.ru_stime + limits.render_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s))
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _render(task: _Task) -> _Rendered:
    clock = ManualClock(task.now)
    with contextlib.suppress(TemplateError):  # has read every file that an error reads
        compile_template("{{ strftime_now('%c') }}{{ raise_exception('') }}", clock).render()
    _confine(task.limits)
    try:
        text = compile_template(task.template, clock).render(task.variables)
    except MemoryError:
        return _Rendered(error="it takes too much memory; make the template simpler")
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        return _Rendered(error=str(error)[:1000] or type(error).__name__)
    if len(text.encode()) > task.limits.output_bytes:
        return _Rendered(error=f"it writes more than {task.limits.output_bytes} bytes")
    return _Rendered(text)


def main() -> None:
    """Render the task on the standard input."""
    task = convert(msgspec.msgpack.decode(sys.stdin.buffer.read()), _Task)
    sys.stdout.buffer.write(msgspec.msgpack.encode(_render(task)))


if __name__ == "__main__":
    main()
