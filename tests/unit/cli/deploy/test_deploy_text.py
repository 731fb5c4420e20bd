import json
import shlex
from typing import Any

from tests.cases import case, cases
from tests.unit.cli.deploy.test_plan import CODE, LAPTOP, LLM, SKLEARN, deployment, folder

from hostelry.cli.deploy.calls import waiting_text
from hostelry.cli.deploy.model_formats import Task
from hostelry.cli.deploy.plan import DeploySource
from hostelry.cli.deploy.recognise import DeployKind, Recognised
from hostelry.cli.deploy.reservation import reservation
from hostelry.cli.deploy.source import adapters_in
from hostelry.cli.deploy.text import DeployPlan, next_lines, plan_document, plan_lines, snippets

TEXT = Recognised(kind=DeployKind.LLM, title="", task=Task.TEXT)
VECTORS = Recognised(kind=DeployKind.LLM, title="", task=Task.VECTORS)
CLASSES = Recognised(kind=DeployKind.LLM, title="", task=Task.CLASSES)
XGBOOST = Recognised(
    kind=DeployKind.FRAMEWORK, title="", framework="xgboost", version="1.7", num_features=3
)
GRAPH = Recognised(kind=DeployKind.GRAPH, title="a graph")


@cases(
    "recognised, environment, titles, body",
    case("a chat", LLM, {}, ["curl", "openai", "boto3"], '"messages"'),
    case("a base model", TEXT, {}, ["curl", "openai", "boto3"], '"prompt"'),
    case("vectors", VECTORS, {}, ["curl", "openai", "boto3"], '"input"'),
    case("classes", CLASSES, {}, ["curl", "boto3"], '"inputs"'),
    case("rows", SKLEARN, {}, ["curl", "boto3"], "[[1.0, 1.0, 1.0, 1.0]]"),
    case("a csv line", XGBOOST, {}, ["curl", "boto3"], "1,1,1"),
    case("a probe", CODE, {"HOSTELRY_PROBE_BODY": "it's"}, ["curl", "boto3"], "it"),
    case("nothing says which body it reads", GRAPH, {}, [], ""),
)
def test_the_programs_of_a_model(
    recognised: Recognised, environment: dict[str, str], titles: list[str], body: str
) -> None:
    it = snippets(recognised, deployment(environment=environment), " --home /h")
    assert [title for title, _ in it.blocks] == titles
    assert body in it.curl
    assert it.environment == 'eval "$(hostelry env --home /h)"'
    for _, text in it.blocks:
        shell, _, program = text.partition("<<'END'\n")
        shlex.split(shell)
        compile(program.removesuffix("END"), "snippet", "exec")


def test_a_chat_is_named_with_its_adapters() -> None:
    it = deployment(adapters=adapters_in(folder("es/adapter_config.json")))
    shown = snippets(LLM, it)
    assert shown.hostelry == ("hostelry chat chat", "hostelry chat chat-es")
    assert "stand in the place of chat: chat-es" in next_lines(shown, it)[-1]


def plan(**given: Any) -> DeployPlan:
    it = deployment(**given)
    source = DeploySource(found=folder("config.json", "model.safetensors"), recognised=LLM,
                          digests={})  # fmt: skip
    return DeployPlan(
        source=source,
        deployment=it,
        reserved=reservation(LLM, 270_000_000, LAPTOP, None),
        steps=[f"create endpoint config {it.config.name}"],
        new_bucket="",
        creates_component=True,
        missing_bytes=200,
        room=["yes"],
        notes=["a note"],
        usual_s=7.4,
    )


def test_a_plan_names_everything_that_is_created() -> None:
    it = plan(min_copies=0, max_copies=2)
    text = "\n".join(plan_lines(it))
    for name in (it.deployment.model.name, it.deployment.config.name, it.deployment.model.image,
                 "ml.m5.4xlarge", "0 to 2 copies", "none without calls", "4 CPUs, 1152 MB",
                 "2 files", "usually        7 s", "a note"):  # fmt: skip
        assert name in text
    document = plan_document(it)
    assert json.loads(json.dumps(document)) == document
    assert document["steps"][0] == f"create endpoint config {it.deployment.config.name}"
    assert document["scaling"] == {"min": 0, "max": 2}


@cases(
    "state, text",
    case("no control", None, "component chat: control does not answer"),
    case("no endpoint yet", {"endpoints": []}, "component chat"),
    case("a copy on its way", {"endpoints": [{"name": "chat", "copies": [
            {"phase": "ready"}, {"phase": "downloading", "reason": "40 %"}]}]},
        "component chat: copy downloading, 40 %"),
    case("no place for it", {"endpoints": [{"name": "chat", "copies": [],
                        "components": [{"placement_note": "no room"}]}]},
        "component chat: no room"),
)  # fmt: skip
def test_the_text_of_a_wait(state: dict[str, Any] | None, text: str) -> None:
    assert waiting_text("component chat", "chat", state) == text
