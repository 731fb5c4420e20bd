"""Rules from images to model servers: the operator's (images.toml), the built-in, containers.

    [[image]]                              # an operator's own program
    pattern = "*/my-server:*"
    command = ["python", "-m", "my_server"]
    secrets = ["hub", "proxy"]             # its program runs no code of a model's author
    [image.probe]
    content_type = "application/json"
    body = '{"instances": [1]}'

    [[image]]                              # a container, other than by default
    pattern = "*/fetches:*"
    container = true
    network = "bridge"

    [containers]                           # of every image without a rule
    network = "none"

    the image matches an [[image]]         -> the first that matches
    hostelry/drill                         -> the built-in drill server
    hostelry/graph                         -> the built-in server of graphs
    djl-inference, djl-lmi, lmi            -> the built-in LLM server
    vllm                                   -> the same, in the manner of vLLM
    tgi-inference, text-generation-inference
                                           -> the same, in the manner of TGI
    sagemaker-scikit-learn, sagemaker-xgboost, pytorch-inference, tensorflow-inference,
    huggingface-pytorch-inference, autogluon-inference
                                           -> the built-in framework server, with the tag's runtime
    tritonserver, sagemaker-tritonserver   -> the built-in server over Triton
    any other                              -> its own container, unless `enabled = false`

A program's rule must have `probe`, a request that a working server answers with 200, which proves
readiness. For a container without a probe, an answer below 500 to an empty object is enough.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from hostelry.base.errors import TerminalError
from hostelry.base.json import convert
from hostelry.base.operator_secrets import SecretPurpose
from hostelry.fleet.rules.frameworks import (
    CUSTOM_CODE,
    TRUSTED,
    algorithm_note,
    find_framework_image,
)
from hostelry.fleet.rules.given_variables import BUILT_IN_NAMES
from hostelry.fleet.rules.interpreter import PYTHON

LMI_REPOSITORY = re.compile(r"(^|[-_./])(djl-inference|djl-lmi|lmi)($|[-_./])")
VLLM_REPOSITORY = re.compile(r"(^|[-_./])vllm($|[-_./])")
TGI_REPOSITORY = re.compile(r"(^|[-_./])(tgi-inference|text-generation-inference)$")
LMI_COMMAND = (*PYTHON, "-m", "hostelry.containers.lmi")
VLLM_COMMAND = (*LMI_COMMAND, "--vllm")
TGI_COMMAND = (*LMI_COMMAND, "--tgi")
LMI_PROBE_BODY = (
    b'{"inputs": "Hello", "parameters": {"max_new_tokens": 1, "output_formatter": "json"}}'
)
DRILL_REPOSITORY = re.compile(r"hostelry/drill$")
DRILL_COMMAND = (*PYTHON, "-m", "hostelry.containers.drill")
GRAPH_REPOSITORY = re.compile(r"hostelry/graph$")
GRAPH_PROOF = "application/vnd.hostelry.graph-proof"
GRAPH_COMMAND = (*PYTHON, "-m", "hostelry.containers.graph")
FRAMEWORK_COMMAND = (*PYTHON, "-m", "hostelry.containers.predictive")
TRITON_REPOSITORY = re.compile(r"(^|[-_./])tritonserver$")
TRITON_COMMAND = (*PYTHON, "-m", "hostelry.containers.triton")


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A real request to /invocations that proves readiness.

    The answer must be 200. With `json_field` it must be JSON with this field, at the top or in the
    first element of a list. With `or_vector` a list of numbers, or labels with scores, will do.
    With `any_answer` no request is known that the server answers with 200, so a refusal that proves
    the route is enough. With `model_errors` a 500 is enough, too, because only the model's own
    functions cause it. With `ping_alone` no request is sent, because no model is loaded yet.
    """

    content_type: str
    body: bytes
    json_field: str | None = None
    or_vector: bool = False
    any_answer: bool = False
    model_errors: bool = False
    ping_alone: bool = False


class ImageRule(msgspec.Struct, frozen=True, kw_only=True):
    """How copies of an image are started (`argv`) and proven (`probe`).

    kind: "lmi", "predictive", "triton", "graph", "drill", "operator" or "container".
    argv: a program, or the arguments of a container's entry point.
    network: a container's network: "none", "host" or "bridge".
    engine: the container engine, a name or a path. None for the first that works.
    pull: whether an image that is not on this machine is fetched.
    runtime: the folder of the runtime that its server needs.
    environment: names that a container's Environment may set for a program, a star for any ending.
    None for all names that are not known to steer programs.
    secrets: the operator's secrets that a program gets.
    note: a remark for a copy's log and its failures, or an empty text.
    """

    kind: str
    argv: tuple[str, ...]
    probe: Probe
    network: str = "none"
    engine: str | None = None
    pull: bool = True
    environment: tuple[str, ...] | None = None
    runtime: str | None = None
    secrets: tuple[SecretPurpose, ...] = ()
    note: str = ""

    @property
    def is_built_in(self) -> bool:
        """Whether it is one of Hostelry's own servers."""
        return self.kind in ("lmi", "predictive", "triton", "graph", "drill")

    @property
    def runs_code(self) -> bool:
        """Whether a model's files are code, which its server runs with the copy's rights."""
        return self.kind in ("predictive", "triton")

    @property
    def loads_hub_models(self) -> bool:
        """Whether its server takes a model of the hub by its id."""
        return self.kind == "lmi" or (self.runtime or "").startswith("huggingface-")

    def get_secrets(self, operator: Mapping[str, str]) -> tuple[SecretPurpose, ...]:
        """The secrets that the program gets, none if a model's author's code runs in it."""
        runs_trusted_code = self.kind == "lmi" and operator.get(CUSTOM_CODE) == TRUSTED
        return () if runs_trusted_code else self.secrets

    @property
    def invokes(self) -> bool:
        """Whether its server invokes other models, with keys that its agent sends."""
        return self.kind == "graph"

    @property
    def again(self) -> "ImageRule":
        """The rule of a copy that was ready before. A graph then serves on without a target."""
        if self.probe.content_type != GRAPH_PROOF:
            return self
        return replace(self, probe=replace(self.probe, content_type=f"{GRAPH_PROOF}; again"))

    @property
    def is_container(self) -> bool:
        """Whether the image itself is run."""
        return self.kind == "container"


LMI_RULE = ImageRule(
    kind="lmi",
    argv=LMI_COMMAND,
    probe=Probe(
        content_type="application/json",
        body=LMI_PROBE_BODY,
        json_field="generated_text",
        or_vector=True,
    ),
    environment=BUILT_IN_NAMES,
    secrets=(SecretPurpose.HUB, SecretPurpose.PROXY),
)
VLLM_RULE = replace(LMI_RULE, argv=VLLM_COMMAND)
TGI_RULE = replace(LMI_RULE, argv=TGI_COMMAND)
# The server that drills break on purpose (`hostelry chaos`).
DRILL_RULE = ImageRule(
    kind="drill",
    argv=DRILL_COMMAND,
    probe=Probe(content_type="application/json", body=b"{}"),
    environment=BUILT_IN_NAMES,
)
# Its content type asks whether its calls could be made, without invoking a model.
GRAPH_RULE = ImageRule(
    kind="graph",
    argv=GRAPH_COMMAND,
    probe=Probe(content_type=GRAPH_PROOF, body=b""),
    environment=BUILT_IN_NAMES,
)

UNKNOWN_PROBE = Probe(content_type="application/json", body=b"{}", any_answer=True)
MODEL_PROBE = replace(UNKNOWN_PROBE, model_errors=True)
# Its server refuses the empty object with 400, and has proven the model itself before /ping is 200.
TRITON_RULE = ImageRule(kind="triton", argv=TRITON_COMMAND, probe=UNKNOWN_PROBE, runtime="triton")
SERVE = ("serve",)
PROBE_BODY = "HOSTELRY_PROBE_BODY"
PROBE_CONTENT_TYPE = "HOSTELRY_PROBE_CONTENT_TYPE"


class _ProbeRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    content_type: str
    body: str


Network = Literal["none", "host", "bridge"]


class _ImageRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    command: tuple[str, ...] | None = None
    probe: _ProbeRow | None = None
    container: bool = False
    network: Network | None = None
    environment: tuple[str, ...] | None = None
    secrets: tuple[SecretPurpose, ...] | None = None


class _Containers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of images without a rule, and of all containers."""

    enabled: bool = True
    engine: str | None = None
    pull: bool = True
    network: Network = "none"


class _ImagesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    image: tuple[_ImageRow, ...] = ()
    containers: _Containers = _Containers()


class ImageRules:
    """The rule table: the operator's rules in their order, the built-in rules, then containers."""

    def __init__(
        self,
        operator: Sequence[tuple[str, ImageRule]] = (),
        otherwise: ImageRule | None = None,
    ) -> None:
        self._operator = tuple(operator)
        self._otherwise = otherwise

    @classmethod
    def load(cls, operator_file: Path | None) -> "ImageRules":
        """The built-in rules and the rules of `operator_file`, which need not exist.

        Raises TerminalError with the file and the fault.
        """
        if operator_file is None or not operator_file.exists():
            return cls(otherwise=_container(_Containers()))
        try:
            document = tomllib.loads(operator_file.read_text(encoding="utf-8"))
            file = convert(document, _ImagesFile)
            return cls(
                [(row.pattern, _rule(row, file.containers)) for row in file.image],
                _container(file.containers) if file.containers.enabled else None,
            )
        except (OSError, ValueError, RecursionError) as error:
            raise TerminalError(
                f"{operator_file}: {error}. Each [[image]] needs pattern, and either command (a "
                "list) and [image.probe] with content_type and body, or container = true."
            ) from error

    def resolve(self, image: str) -> ImageRule | None:
        """The first rule that matches `image`, or None if the operator allows no containers."""
        for pattern, rule in self._operator:
            if fnmatchcase(image, pattern):
                return rule
        repository = parse_repository(image)
        if DRILL_REPOSITORY.match(repository):
            return DRILL_RULE
        if GRAPH_REPOSITORY.match(repository):
            return GRAPH_RULE
        if TGI_REPOSITORY.search(repository):
            return TGI_RULE
        if LMI_REPOSITORY.search(repository):
            return LMI_RULE
        if VLLM_REPOSITORY.search(repository):
            return VLLM_RULE
        if TRITON_REPOSITORY.search(repository):
            return TRITON_RULE
        found = framework_rule(image)
        note = algorithm_note(repository, parse_registry(image))
        if found is None and note and self._otherwise is not None:
            return replace(self._otherwise, note=note)
        return found or self._otherwise


def apply_own_probe(rule: ImageRule, environment: Mapping[str, str]) -> ImageRule:
    """The rule with the probe in a container's Environment, unless the operator gave one.

    The maker of the image knows a request that it answers. The operator may not.
    """
    body = environment.get(PROBE_BODY)
    if body is None or not (rule.probe.any_answer or rule.invokes):
        return rule
    content_type = environment.get(PROBE_CONTENT_TYPE) or "application/json"
    return replace(rule, probe=Probe(content_type=content_type, body=body.encode()))


def build_multi_model_rule(rule: ImageRule, image: str) -> ImageRule:
    """The rule for a container of many models, which it loads later. Raises TerminalError."""
    if rule.kind in ("lmi", "graph", "drill"):
        raise TerminalError(
            f'The image "{image}" is served by a built-in server of one model, and Mode is '
            "MultiModel. Many adapters of one base are inference components; many models "
            "need an image with SageMaker's multi-model contract."
        )
    return replace(rule, probe=replace(rule.probe, ping_alone=True))


def framework_rule(image: str) -> ImageRule | None:
    """The rule of one of AWS's framework images, or None for other images."""
    found = find_framework_image(parse_repository(image), parse_tag(image), parse_registry(image))
    if found is None:
        return None
    argv = (*FRAMEWORK_COMMAND, "--framework", found.framework, "--runtime", found.runtime)
    return ImageRule(
        kind="predictive", argv=argv, probe=MODEL_PROBE, runtime=found.runtime, note=found.note
    )


def parse_registry(image: str) -> str:
    """The image's registry, or an empty text."""
    return (
        image.partition("@")[0].partition(":")[0].removesuffix(parse_repository(image)).rstrip("/")
    )


def parse_tag(image: str) -> str:
    """The image's tag, or an empty text."""
    path = image.partition("@")[0].rpartition("/")[2]
    return path.partition(":")[2]


def parse_repository(image: str) -> str:
    """The image's repository, without registry, tag and digest."""
    path = image.partition("@")[0]
    first, slash, rest = path.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        path = rest
    return path.partition(":")[0]


def describe_unknown_image(image: str, operator_file: Path) -> str:
    """Describe the failure of a copy whose image has no rule, with a remedy."""
    note = algorithm_note(parse_repository(image), parse_registry(image))
    return (
        f'No rule for the image "{image}", and {operator_file} allows no containers ([containers] '
        "enabled = false). Images of djl-inference, djl-lmi, lmi, vllm and TGI run on the built-in "
        "LLM server, AWS's framework images on the framework server, tritonserver's on Triton; for "
        "any other, add an "
        f"[[image]] with pattern, command and probe, or with container = true, to that file. {note}"
    ).strip()


def _rule(row: _ImageRow, containers: _Containers) -> ImageRule:
    if not row.pattern.strip():
        raise ValueError("an [[image]] has an empty pattern")
    if row.command is not None and (not row.command or not row.command[0]):
        raise ValueError(f'the command of the image pattern "{row.pattern}" is empty')
    probe = _probe(row)
    if row.container:
        if row.environment is not None:
            raise ValueError(
                f'the image pattern "{row.pattern}" has environment and is a container, which gets '
                "its whole Environment"
            )
        if row.secrets is not None:
            raise ValueError(
                f'the image pattern "{row.pattern}" has secrets and is a container, which gets '
                "none of the operator's variables"
            )
        return replace(
            _container(containers),
            argv=row.command or SERVE,
            probe=probe or UNKNOWN_PROBE,
            network=row.network or containers.network,
        )
    if row.network is not None:
        raise ValueError(f'the image pattern "{row.pattern}" has a network and is no container')
    if row.command is None or probe is None:
        raise ValueError(f'the image pattern "{row.pattern}" has no command or no probe')
    return ImageRule(
        kind="operator",
        argv=row.command,
        probe=probe,
        environment=row.environment,
        secrets=row.secrets or (),
    )


def _probe(row: _ImageRow) -> Probe | None:
    if row.probe is None:
        return None
    if "/" not in row.probe.content_type:
        raise ValueError(
            f'probe.content_type of the image pattern "{row.pattern}" is '
            f'"{row.probe.content_type}", which is not a media type such as application/json'
        )
    return Probe(content_type=row.probe.content_type, body=row.probe.body.encode())


def _container(containers: _Containers) -> ImageRule:
    if containers.engine is not None and not containers.engine.strip():
        raise ValueError("containers.engine is empty; name podman, docker or a path")
    return ImageRule(
        kind="container",
        argv=SERVE,
        probe=UNKNOWN_PROBE,
        network=containers.network,
        engine=containers.engine,
        pull=containers.pull,
    )
