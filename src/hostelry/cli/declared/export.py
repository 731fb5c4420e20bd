"""`hostelry export`: the platform's resources as a document for `hostelry apply`."""

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from hostelry.base.errors import TerminalError
from hostelry.cli import completion as names
from hostelry.cli.declared.aws import AwsAtPlatform
from hostelry.cli.declared.document import STEPPING, TRACKING
from hostelry.cli.declared.expansion import (
    TRACKING_TYPE,
    USUAL_METRIC,
    USUAL_POLICY,
    ScalingError,
    get_dimension,
)
from hostelry.cli.declared.forms import get_base, models_in, replace_models, specifications
from hostelry.cli.declared.observation import ACTIONS, ObservedState, observed_state
from hostelry.cli.declared.plan_scaling import named_in, resource_key
from hostelry.cli.declared.planning import AWS_TAGS, OWN_TAGS
from hostelry.cli.declared.resource import (
    NAME_TAG,
    UNNAMED_SET,
    Observed,
    Params,
    ResourceKey,
    ResourceKind,
    split_target,
)
from hostelry.cli.declared.schema import near_misses
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.graph.strict_yaml import StrictLoader

HEADER = "# Written by `hostelry export`; `hostelry apply -f` makes it again.\n"
WIDTH = 100
VARIANT = "AllTraffic"
Document = dict[str, Any]
NAME_OF_METRIC = ("EndpointName", "InferenceComponentName")
_USUAL_NAME = ("VariantName", VARIANT)


class DocumentDumper(yaml.SafeDumper):
    """PyYAML's writer. It also quotes texts that only `StrictLoader` would read as another type."""


for _first, _resolvers in StrictLoader.yaml_implicit_resolvers.items():
    for _tag, _pattern in _resolvers:
        DocumentDumper.add_implicit_resolver(_tag, _pattern, [_first])


def export(
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            "-e",
            help="Export only this endpoint and its resources. Can be repeated.",
            autocompletion=names.endpoints,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write. Default: print to standard output."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write models, endpoints, components, scaling and alarms as a document for `hostelry apply`.

    Example: hostelry export --endpoint shop -o shop.yaml
    """
    config, credentials = load_home(home_at(home))
    observed = observed_state(
        AwsAtPlatform(config, credentials), lambda _: True, credentials.role_arn
    )
    there = [it.key.name for it in observed.of(ResourceKind.ENDPOINT)]
    for name in endpoint or ():
        if name not in there:
            near = near_misses(name, there) or f"there are {', '.join(there) or 'none'}"
            raise TerminalError(f"there is no endpoint {name}; {near}")
    document = build_document(observed, endpoint or ())
    if as_json:
        print_json(document)
    elif output is None:
        typer.echo(document_text(document), nl=False)
    else:
        write_document(output, document_text(document))


def document_text(document: dict[str, Any]) -> str:
    """A document as YAML."""
    text = yaml.dump(
        document, Dumper=DocumentDumper, sort_keys=False, allow_unicode=True, width=WIDTH
    )
    return HEADER + text


def write_document(path: Path, text: str) -> None:
    """Write a file atomically. Raises TerminalError if it cannot be written."""
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise TerminalError(f"{path} cannot be written: {error.strerror}") from None


def build_document(observed: ObservedState, endpoints: Iterable[str] = ()) -> Document:
    """The document of all resources, or of the named `endpoints` and their resources."""
    chosen = frozenset(endpoints)
    whole = _Export(observed, chosen)
    sections = {
        "set": whole.owner(),
        "models": whole.models(),
        "endpoints": whole.endpoints(),
        "alarms": whole.alarms(),
    }
    return {name: it for name, it in sections.items() if it}


class _Export:
    """The resources to export, and the models' names in the document."""

    def __init__(self, observed: ObservedState, chosen: frozenset[str]) -> None:
        self.made_by_policies = observed.made_by_policies
        self._all = observed
        self._endpoints = [
            one
            for one in observed.of(ResourceKind.ENDPOINT)
            if (not chosen or one.key.name in chosen) and one.status != "Deleting"
        ]
        named = {it.key.name for it in self._endpoints}
        self._components = [
            one
            for one in observed.of(ResourceKind.COMPONENT)
            if one.params["EndpointName"] in named and one.status != "Deleting"
        ]
        kept = {it.key for it in (*self._endpoints, *self._components)}
        self._targets = [
            one for one in observed.of(ResourceKind.TARGET) if resource_key(one.key.name) in kept
        ]
        used = {
            name for one in (*self._endpoints, *self._components) for name in models_in(one.params)
        }
        self._models = [
            one for one in observed.of(ResourceKind.MODEL) if not chosen or one.key.name in used
        ]
        self._alarms = [
            one
            for one in observed.of(ResourceKind.ALARM)
            if one.key.name not in observed.made_by_policies
        ]
        if chosen:
            self._alarms = _select_alarms(self._alarms, self._endpoints, self._components)
        self.names = document_names(self._models)

    def owner(self) -> str:
        """The set's name, if all resources belong to one set."""
        found = (*self._models, *self._endpoints, *self._components, *self._targets, *self._alarms)
        owners = {it.owner for it in found}
        owner = owners.pop() if len(owners) == 1 else ""
        return "" if owner == UNNAMED_SET else owner

    def models(self) -> Document:
        """The section of models."""
        return {self.names.get(it.key.name, it.key.name): self._model(it) for it in self._models}

    def _model(self, found: Observed) -> Document:
        params = dict(found.params)
        if len(params["Containers"]) == 1:
            [container] = params.pop("Containers")
            params = {**container, **params}
        return {**params, **get_tags(found)}

    def endpoints(self) -> Document:
        """The section of endpoints, each with its components and scaling."""
        return {it.key.name: self._endpoint(it) for it in self._endpoints}

    def _endpoint(self, found: Observed) -> Document:
        config = dict(replace_models(found.params["Config"], self.names))
        variants = [self._variant(found, it) for it in config.pop("ProductionVariants", ())]
        if len(variants) == 1:
            shown = {name: it for name, it in variants[0].items() if (name, it) != _USUAL_NAME}
        else:
            shown = {"ProductionVariants": variants}
        deployment = found.params.get("DeploymentConfig")
        components = {
            one.key.name: self._component(one)
            for one in self._components
            if one.params["EndpointName"] == found.key.name and get_base(one.params) is None
        }
        return {
            **shown,
            **config,
            **({} if deployment is None else {"DeploymentConfig": deployment}),
            **get_tags(found),
            **({"Components": components} if components else {}),
        }

    def _variant(self, found: Observed, given: Params) -> Document:
        name = given["VariantName"]
        live = found.live.get(name, {})
        resource_id = f"endpoint/{found.key.name}/variant/{name}"
        scaling = self._scaling(resource_id, serverless="ServerlessConfig" in given)
        variant = dict(given)
        if "InitialInstanceCount" in variant and not scaling:
            variant["InitialInstanceCount"] = max(1, live.get("DesiredInstanceCount", 1))
        variant["InitialVariantWeight"] = live.get("DesiredWeight", 1)
        for field, usual in (("InitialInstanceCount", 1), ("InitialVariantWeight", 1)):
            if variant.get(field) == usual:
                variant.pop(field)
        return {**variant, **({"Scaling": scaling} if scaling else {})}

    def _component(self, found: Observed) -> Document:
        params = {
            name: it
            for name, it in found.params.items()
            if name not in ("EndpointName", "VariantName", "Specification", "CopyCount")
        }
        if "Specification" in found.params:
            params = {**self._flat(found.params["Specification"]), **params}
        else:
            params["Specifications"] = replace_models(params["Specifications"], self.names)
        if found.params["CopyCount"] != 1:
            params["CopyCount"] = found.params["CopyCount"]
        adapters = {
            one.key.name: adapter_document(one)
            for one in self._components
            if get_base(one.params) == found.key.name
        }
        scaling = self._scaling(f"inference-component/{found.key.name}")
        return {
            **params,
            **get_tags(found),
            **({"Adapters": adapters} if adapters else {}),
            **({"Scaling": scaling} if scaling else {}),
        }

    def _flat(self, specification: Params) -> Document:
        """A specification's fields together with the fields of its container and requirements."""
        flat = dict(replace_models(specification, self.names))
        container = dict(flat.pop("Container", {}))
        model = self._all.resources.get(
            ResourceKey(ResourceKind.MODEL, specification.get("ModelName", ""))
        )
        if model is not None and container.get("Image") == model.params["Containers"][0]["Image"]:
            del container["Image"]
        needs = flat.pop("ComputeResourceRequirements", {})
        return {**flat, **container, **needs}

    def _scaling(self, resource_id: str, *, serverless: bool = False) -> Document:
        targets = [it for it in self._targets if split_target(it.key.name)[0] == resource_id]
        if not targets:
            return {}
        [target, *_] = targets
        dimension = split_target(target.key.name)[1]
        given = dict(target.params)
        suspended = {name: on for name, on in given.pop("SuspendedState", {}).items() if on}
        usual = ""
        with contextlib.suppress(ScalingError):
            usual = get_dimension(resource_id, serverless=serverless)
        policies = {
            found.key.name: found.params
            for found in self._all.of(ResourceKind.POLICY)
            if found.key.within == target.key.name
        }
        actions = {
            found.key.name: action_document(found.params)
            for found in self._all.of(ResourceKind.ACTION)
            if found.key.within == target.key.name
        }
        value = usual_value(policies, dimension)
        shown = (
            {}
            if value is not None
            else {name: policy_document(it, dimension) for name, it in policies.items()}
        )
        return {
            **given,
            **({} if dimension == usual else {"ScalableDimension": dimension}),
            **({"SuspendedState": suspended} if suspended else {}),
            **({} if value is None else {"TargetValue": value}),
            **({"Policies": shown} if shown else {}),
            **({"ScheduledActions": actions} if actions else {}),
            **get_tags(target),
        }

    def alarms(self) -> Document:
        """The section of alarms."""
        return {it.key.name: alarm_document(it) for it in self._alarms}


def document_names(models: Iterable[Observed]) -> dict[str, str]:
    """The document names of models that `apply` created under another name, by that name."""
    listed = list(models)
    taken = {it.key.name for it in listed}
    names: dict[str, str] = {}
    for model in listed:
        name = model.tags.get(NAME_TAG, "")
        if name and name not in taken:
            names[model.key.name] = name
            taken.add(name)
    return names


def get_tags(found: Observed) -> Document:
    """The tags, except those that `apply` or AWS sets."""
    own = {name: it for name, it in found.tags.items() if not name.startswith((OWN_TAGS, AWS_TAGS))}
    return {"Tags": own} if own else {}


def adapter_document(found: Observed) -> str | Document:
    """An adapter. If it has no other fields, only the text of its archive's address."""
    [specification] = specifications(found.params)
    rest = {
        name: it
        for name, it in specification.items()
        if name not in ("Container", "BaseInferenceComponentName")
    }
    url: str = specification["Container"]["ArtifactUrl"]
    more = {**rest, **get_tags(found)}
    return {"ArtifactUrl": url, **more} if more else url


def policy_document(params: Params, dimension: str) -> Document:
    """A policy's fields. A predefined metric has its short form."""
    if params["PolicyType"] != TRACKING_TYPE:
        return dict(params[STEPPING])
    given = dict(params[TRACKING])
    metric = given.get("PredefinedMetricSpecification", {})
    if set(metric) != {"PredefinedMetricType"}:
        return given
    del given["PredefinedMetricSpecification"]
    name = metric["PredefinedMetricType"]
    return given if name == USUAL_METRIC.get(dimension) else {**given, "Metric": name}


def usual_value(policies: Mapping[str, Params], dimension: str) -> float | None:
    """The target value, if the only policy is the one that TargetValue stands for."""
    if list(policies) != [USUAL_POLICY]:
        return None
    given = policy_document(policies[USUAL_POLICY], dimension)
    value: float | None = given.get("TargetValue")
    return value if list(given) == ["TargetValue"] else None


def action_document(params: Params) -> Document:
    """A scheduled action, with its bounds among the other fields."""
    rest = {name: it for name, it in params.items() if name != "ScalableTargetAction"}
    return {**rest, **params.get("ScalableTargetAction", {})}


def alarm_document(found: Observed) -> Document:
    """An alarm. Its dimensions are a mapping by name."""
    params = dict(found.params)
    dimensions = params.get("Dimensions")
    if dimensions:
        params["Dimensions"] = {it["Name"]: it["Value"] for it in dimensions}
    return {**params, **get_tags(found)}


def _select_alarms(
    alarms: list[Observed], endpoints: list[Observed], components: list[Observed]
) -> list[Observed]:
    """Alarms on metrics or scaling of these resources, and composites of only such alarms."""
    names = {it.key.name for it in (*endpoints, *components)}
    rollback = {
        alarm["AlarmName"]
        for one in endpoints
        for alarm in one.params.get("DeploymentConfig", {})
        .get("AutoRollbackConfiguration", {})
        .get("Alarms", ())
    }
    simple = [it for it in alarms if "AlarmRule" not in it.params]
    kept = {it.key.name for it in simple if it.key.name in rollback or _concerns(it.params, names)}
    all_names = [it.key.name for it in alarms]
    for alarm in alarms:
        children = set(named_in(alarm.params, all_names))
        if "AlarmRule" in alarm.params and children and children <= kept:
            kept.add(alarm.key.name)
    return [it for it in alarms if it.key.name in kept]


def _concerns(params: Params, names: set[str]) -> bool:
    dimensions = list(params.get("Dimensions", ()))
    for query in params.get("Metrics", ()):
        dimensions += query.get("MetricStat", {}).get("Metric", {}).get("Dimensions", ())
    if any(it["Name"] in NAME_OF_METRIC and it["Value"] in names for it in dimensions):
        return True
    actions = [action for name in ACTIONS for action in params.get(name, ())]
    return any(it.startswith("policy/") and it.split("/")[2] in names for it in actions)
