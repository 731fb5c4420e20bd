"""A plan and its result as text and as JSON. Pure."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hostelry.cli.deploy.model_formats import Task
from hostelry.cli.deploy.plan import DeploySource, ModelDeployment
from hostelry.cli.deploy.recognise import Recognised
from hostelry.cli.deploy.reservation import MIB, Machine, Reservation, copies_within, shape_text
from hostelry.domain.shape import Shape
from hostelry.fleet.shapes import get_shape

MB = 1e6
MAX_LINES = 20  # of steps, and of adapters
JSON, CSV = "application/json", "text/csv"
QUESTION = "Give me a creative excuse to skip the party."
PROBE_BODY, PROBE_TYPE = "HOSTELRY_PROBE_BODY", "HOSTELRY_PROBE_CONTENT_TYPE"
SIGNED = (
    '--aws-sigv4 "aws:amz:$AWS_REGION:sagemaker" --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY"'
)
PARTS = ("cpus", "memory_bytes", "accelerators")


class DeployPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is printed before a deployment begins."""

    source: DeploySource
    deployment: ModelDeployment
    reserved: Reservation
    steps: Sequence[str]
    new_bucket: str
    creates_component: bool
    missing_bytes: int
    room: Sequence[str]
    notes: Sequence[str]
    usual_s: float | None


def plan_lines(plan: DeployPlan) -> list[str]:
    """The plan as text."""
    deployment, found = plan.deployment, plan.source.found
    rows = [
        ("model", f"{deployment.model.name} from {deployment.model.uri or 'its image alone'}"),
        ("image", deployment.model.image),
        ("endpoint", f"{deployment.name} on {deployment.config.instance_type}"),
        ("component", f"{deployment.name}, {copies_text(plan)}"),
        ("each reserves", reservation_text(plan.reserved)),
        *[("fits" if number == 0 else "", text) for number, text in enumerate(plan.room)],
        ("uploads", uploads_text(plan)),
    ]
    shown = deployment.adapters[:MAX_LINES]
    rows += [("adapter", f"{it.adapter} as {it.component}") for it in shown]
    if len(deployment.adapters) > MAX_LINES:
        rows.append(("", f"and {len(deployment.adapters) - MAX_LINES} more adapters"))
    if found.left_out:
        size = sum(it.size_bytes for it in found.left_out) / MB
        names = ", ".join(it.name for it in found.left_out[:4])
        rows.append(("left out", f"{len(found.left_out)} files, {size:.1f} MB: {names}"))
    rows += [("note", it) for it in plan.notes]
    if not plan.steps:
        rows.append(("to do", "nothing: all of it is there"))
    for number, text in enumerate(plan.steps[:MAX_LINES]):
        rows.append(("to do" if number == 0 else "", text))
    if len(plan.steps) > MAX_LINES:
        rows.append(("", f"and {len(plan.steps) - MAX_LINES} more"))
    if plan.steps and plan.usual_s is not None:
        rows.append(("usually", f"{plan.usual_s:.0f} s"))
    title = f"{found.given}: {plan.source.recognised.title}"
    return [title, *(f"  {label:13s}  {text}" for label, text in rows)]


def copies_text(plan: DeployPlan) -> str:
    """The number of copies, or its bounds."""
    scaling, copies = plan.deployment.scaling, plan.deployment.copies
    if scaling is None:
        count = 1 if copies is None else copies
        return "1 copy" if count == 1 else f"{count} copies"
    zero = ", none without calls" if scaling.min_copies == 0 else ""
    return (
        f"{scaling.min_copies} to {scaling.max_copies} copies, of {scaling.target:g} concurrent "
        f"requests each{zero}"
    )


def reservation_text(reserved: Reservation) -> str:
    """The resources that a copy reserves, and their purposes."""
    asked = reserved.requirements
    parts = " + ".join(f"{label} {size / MIB:.0f}" for label, size in reserved.parts if size >= MIB)
    accelerators = f", {asked.accelerators:g} accelerators" if asked.accelerators else ""
    return f"{asked.cpus:g} CPUs{accelerators}, {reserved.memory_mb} MB ({parts})"


def uploads_text(plan: DeployPlan) -> str:
    """The amount of data to upload."""
    objects = plan.deployment.objects
    if not objects:
        return "nothing"
    count = f"{len(objects)} file{'' if len(objects) == 1 else 's'}"
    total = sum(it.num_bytes for it in objects) / MB
    if not plan.missing_bytes:
        return f"nothing: {count}, {total:.1f} MB, are there"
    rest = f", of which {plan.missing_bytes / MB:.1f} MB are not there yet"
    partial = plan.missing_bytes / MB < total - 0.05
    return f"{count}, {total:.1f} MB{rest if partial else ''}"


def plan_document(plan: DeployPlan) -> dict[str, Any]:
    """The plan for JSON output."""
    deployment, found, recognised = plan.deployment, plan.source.found, plan.source.recognised
    asked = deployment.requirements
    return {
        "source": found.given,
        "kind": recognised.kind.value,
        "what": recognised.title,
        "runtime": recognised.runtime or None,
        "name": deployment.name,
        "model": deployment.model.name,
        "model_data": deployment.model.uri or None,
        "image": deployment.model.image,
        "environment": dict(deployment.model.environment),
        "endpoint": deployment.name,
        "endpoint_config": deployment.config.name,
        "component": deployment.name,
        "instance_type": deployment.config.instance_type,
        "instances": deployment.config.initial_instances,
        "max_instances": deployment.config.max_instances,
        "copy": {
            "cpus": asked.cpus,
            "memory_mb": plan.reserved.memory_mb,
            "accelerators": asked.accelerators,
            "memory_bytes_for": dict(plan.reserved.parts),
        },
        "copies": deployment.copies,
        "scaling": None
        if deployment.scaling is None
        else {"min": deployment.scaling.min_copies, "max": deployment.scaling.max_copies},
        "adapters": {it.adapter: it.component for it in deployment.adapters},
        "fits": list(plan.room),
        "uploads": {
            "files": len(deployment.objects),
            "bytes": sum(it.num_bytes for it in deployment.objects),
            "missing_bytes": plan.missing_bytes,
        },
        "left_out": [it.name for it in found.left_out],
        "notes": list(plan.notes),
        "steps": list(plan.steps),
        "usual_s": plan.usual_s,
    }


class Snippets(msgspec.Struct, frozen=True, kw_only=True):
    """Shell commands by client. A command is empty if the model has no such route."""

    environment: str
    curl: str = ""
    openai: str = ""
    boto3: str = ""
    hostelry: tuple[str, ...] = ()

    @property
    def blocks(self) -> list[tuple[str, str]]:
        """Title and command of each client, in the order of display."""
        found = [("curl", self.curl), ("openai", self.openai), ("boto3", self.boto3)]
        return [(title, text) for title, text in found if text]


def next_lines(shown: Snippets, deployment: ModelDeployment) -> list[str]:
    """The commands to type next."""
    lines = ["", "Call it:", "", shown.environment]
    for title, text in shown.blocks:
        lines += ["", f"# {title}", text]
    lines += ["", "# hostelry", *shown.hostelry]
    if deployment.adapters:
        named = ", ".join(it.component for it in deployment.adapters[:5])
        lines += ["", f"The adapters' names stand in the place of {deployment.name}: {named}"]
    if not shown.blocks:
        lines += [
            "",
            "Which body it reads is its code's choice: name one with --env "
            "HOSTELRY_PROBE_BODY=..., and each copy is proven by it, and it is shown here.",
        ]
    return lines


class SampleBody(msgspec.Struct, frozen=True):
    """A request body that the model can answer, and its content type."""

    body: str
    content_type: str


def snippets(recognised: Recognised, deployment: ModelDeployment, home_flag: str = "") -> Snippets:
    """Commands that call the model.

    `home_flag` is " --home DIR" for a home other than the default.
    """
    name, task = deployment.name, recognised.task
    environment = f'eval "$(hostelry env{home_flag})"'
    sample = sample_body(recognised, deployment.model.environment)
    if sample is None:
        return Snippets(
            environment=environment, hostelry=(f"hostelry invoke {name} FILE{home_flag}",)
        )
    verb = f"hostelry {'chat' if task is Task.CHAT else 'invoke'} {name}"
    if task is None or not (task.is_text or task is Task.VECTORS):
        return Snippets(
            environment=environment,
            curl=signed_curl(name, sample),
            boto3=boto3_program(name, sample),
            hostelry=(f"printf %s {shlex.quote(sample.body)} | {verb} -{home_flag}",),
        )
    verbs = [verb + home_flag] if task is Task.CHAT else []
    if task is Task.CHAT:
        verbs += [f"hostelry chat {it.component}{home_flag}" for it in deployment.adapters[:3]]
    return Snippets(
        environment=environment,
        curl=openai_curl(name, task),
        openai=openai_program(name, task),
        boto3=boto3_program(name, sample),
        hostelry=tuple(verbs),
    )


def sample_body(recognised: Recognised, environment: Mapping[str, str]) -> SampleBody | None:
    """A request body that the model can answer. None if the format of requests is unknown."""
    if PROBE_BODY in environment:
        return SampleBody(environment[PROBE_BODY], environment.get(PROBE_TYPE) or JSON)
    match recognised.task:
        case Task.CHAT:
            body = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 64}
            return SampleBody(json.dumps(body), JSON)
        case Task.TEXT:
            body = {"inputs": "The sea is", "parameters": {"max_new_tokens": 32}}
            return SampleBody(json.dumps(body), JSON)
        case Task.VECTORS | Task.CLASSES:
            return SampleBody(json.dumps({"inputs": QUESTION}), JSON)
    count = recognised.num_features
    if count is None:
        return None
    if recognised.framework == "xgboost":
        return SampleBody(",".join(["1"] * count), CSV)
    return SampleBody(json.dumps([[1.0] * count]), JSON)


def openai_curl(name: str, task: Task) -> str:
    """A curl command that calls the OpenAI route."""
    route, body = openai_request(name, task)
    return (
        f'curl -sS "$OPENAI_BASE_URL/{route}" -H "Authorization: Bearer $OPENAI_API_KEY" '
        f"-H 'Content-Type: {JSON}' -d {shlex.quote(json.dumps(body))}"
    )


def openai_request(name: str, task: Task) -> tuple[str, dict[str, object]]:
    """The OpenAI route of a task, and a request body."""
    if task is Task.CHAT:
        asked = [{"role": "user", "content": QUESTION}]
        return "chat/completions", {"model": name, "messages": asked, "max_tokens": 64}
    if task is Task.TEXT:
        return "completions", {"model": name, "prompt": "The sea is", "max_tokens": 32}
    return "embeddings", {"model": name, "input": QUESTION}


def openai_program(name: str, task: Task) -> str:
    """A Python program with OpenAI's client."""
    _, body = openai_request(name, task)
    given = ", ".join(f"{key}={value!r}" for key, value in body.items())
    match task:
        case Task.CHAT:
            lines = [
                f"for event in OpenAI().chat.completions.create({given}, stream=True):",
                '    print(event.choices[0].delta.content or "", end="", flush=True)',
                "print()",
            ]
        case Task.TEXT:
            lines = [f"print(OpenAI().completions.create({given}).choices[0].text)"]
        case _:
            lines = [f"print(OpenAI().embeddings.create({given}).data[0].embedding[:8])"]
    return here_document(["from openai import OpenAI", *lines])


def boto3_program(name: str, sample: SampleBody) -> str:
    """A Python program with boto3."""
    return here_document(
        [
            "import boto3",
            'answer = boto3.client("sagemaker-runtime").invoke_endpoint(',
            f"    EndpointName={name!r}, InferenceComponentName={name!r},",
            f"    ContentType={sample.content_type!r},",
            f"    Body={sample.body!r},",
            ")",
            'print(answer["Body"].read().decode())',
        ]
    )


def signed_curl(name: str, sample: SampleBody) -> str:
    """A curl command that signs and sends InvokeEndpoint."""
    return (
        f'curl -sS "$AWS_ENDPOINT_URL/endpoints/{name}/invocations" {SIGNED} '
        f"-H 'Content-Type: {sample.content_type}' "
        f"-H 'X-Amzn-SageMaker-Inference-Component: {name}' -d {shlex.quote(sample.body)}"
    )


def here_document(lines: list[str]) -> str:
    """A Python program as a shell command."""
    return "\n".join(["python - <<'END'", *lines, "END"])


def instances_text(
    deployment: ModelDeployment, endpoint: Mapping[str, Any] | None, copies: int
) -> str:
    """Whether the endpoint's instances have room for `copies` more copies.

    `endpoint` is the endpoint in /internal/placement, or None if it does not exist yet.
    """
    config = deployment.config
    declared = f"{config.instance_type} ({shape_text(get_shape(config.instance_type))})"
    running = [it for it in endpoint["instances"] if it["state"] == "running"] if endpoint else []
    if not running:
        number = config.initial_instances
        return f"yes: {number} x {declared} will be started for {'it' if copies == 1 else 'them'}"
    free = {it["id"]: Shape(**{name: it["free"][name] for name in PARTS}) for it in running}
    fitting = sum(copies_within(deployment.requirements, it) for it in free.values())
    shown = ", ".join(f"{name} has {shape_text(it)} free" for name, it in list(free.items())[:3])
    if fitting >= copies:
        return f"yes, on what runs: {shown}"
    if len(running) < config.max_instances:
        return f"on another {declared}, which will be started: {shown}"
    return f"not now, until copies that run have ended: {shown}"


def machine_text(deployment: ModelDeployment, copies: int, machine: Machine) -> str:
    """This machine's resources for the copies. The resources of an instance are only declared."""
    wanted = deployment.requirements.min_memory_bytes * copies
    has = f"this machine has {gib(machine.free_bytes)} GiB of {gib(machine.memory_bytes)} free"
    if wanted > machine.free_bytes:
        return f"{has}, less than the {gib(wanted)} GiB wanted: it may run out of memory"
    accelerators = f", {machine.accelerators} accelerators" if machine.accelerators else ""
    return f"{has}, {machine.cpus} CPUs{accelerators}"


def gib(num_bytes: int) -> str:
    """Bytes as GiB, with one decimal."""
    return f"{num_bytes / 1024**3:.1f}"
