"""The documents that deploy an option are valid for `hostelry apply`, and count as its objects."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.advisor.mixes import build_mix, build_model, build_models, build_traffic

from hostelry.advisor.document import build_document, check_deployable, count_objects
from hostelry.advisor.options import HostingOption as Option
from hostelry.advisor.plans import OptionPlan, plan_option
from hostelry.advisor.values import FitModel, LatencyClass
from hostelry.base.errors import TerminalError
from hostelry.cli.declared.expansion import wanted_state
from hostelry.cli.declared.resource import ResourceKind
from hostelry.cli.declared.source import parse_sources

LATER: dict[str, Any] = {"latency_class": LatencyClass.OFFLINE}
ADAPTERS = (
    build_model("base"), build_model("es", adapter_of="base"), build_model("fr", adapter_of="base"),
)  # fmt: skip


def plan(option: Option, *models: FitModel) -> OptionPlan:
    mix = build_mix(*models)
    return plan_option(option, models, mix, build_traffic(mix))


@cases(
    "option, models",
    case("dedicated", Option.DEDICATED, build_models(3)),
    case("components", Option.COMPONENTS, build_models(3)),
    case("adapters", Option.ADAPTERS, ADAPTERS),
    case("multi-model", Option.MULTI_MODEL, build_models(3)),
    case("multi-container", Option.MULTI_CONTAINER, build_models(3)),
    case("serverless", Option.SERVERLESS, build_models(3)),
    case("asynchronous", Option.ASYNCHRONOUS, build_models(3, **LATER)),
    case("batch", Option.BATCH, build_models(3, **LATER)),
)
def test_a_document_is_valid(option: Option, models: tuple[FitModel, ...]) -> None:
    found = plan(option, *models)
    check_deployable(found)
    document = build_document(found, build_mix(*models), "shop")
    sources = parse_sources(json.dumps(document), "fit.json", Path())
    wanted = wanted_state(sources, "arn:aws:iam::111122223333:role/r")
    kinds = [it.key.kind for it in wanted.resources.values()]
    configurations = kinds.count(ResourceKind.ENDPOINT)
    assert len(kinds) + configurations == count_objects(document)


def test_what_deploys_a_model_must_be_in_the_file() -> None:
    with pytest.raises(TerminalError, match="model 'one': image is missing"):
        check_deployable(plan(Option.DEDICATED, build_model(image="")))
    with pytest.raises(TerminalError, match="model 'one': artifact is missing"):
        check_deployable(plan(Option.DEDICATED, build_model(artifact="")))


def test_a_multi_model_endpoint_needs_one_prefix() -> None:
    models = (build_model("a"), build_model("b", artifact="s3://other/b.tar.gz"))
    with pytest.raises(TerminalError, match="one prefix of S3"):
        check_deployable(plan(Option.MULTI_MODEL, *models))
