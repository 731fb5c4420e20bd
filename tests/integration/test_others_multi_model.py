"""Multi-model endpoints through boto3 whose server has AWS's contract, and is not ours."""

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.integration.container_rig import ENGINE_TABLE, IMAGE, machine
from tests.integration.multi_model_rig import Models
from tests.integration.platform import Platform, until
from tests.integration.python_image import image_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SERVER = Path(__file__).parent / "servers" / "models_server.py"
KEPT_S = 5.5  # a load that has failed answers further requests for 5 s
where_an_engine_is = pytest.mark.skipif(bool(machine().fault), reason=machine().fault)
IMAGES = f"""{ENGINE_TABLE}
[[image]]
pattern = "mine:*"
command = ["{sys.executable}", "{SERVER}"]
[image.probe]
content_type = "application/json"
body = '{{}}'
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    root = tmp_path_factory.mktemp("home") / "home"
    root.mkdir(mode=0o700)
    (root / "images.toml").write_text(IMAGES)
    with Platform(root) as platform:
        yield platform


@pytest.fixture(scope="module")
def mine(platform: Platform) -> Models:
    return Models(platform, "mine", "mine:1", MODELS_MAX="3").serving


@where_an_engine_is
@pytest.mark.thorough
def test_an_image_of_ones_own_serves_models_where_it_has_the_label(
    platform: Platform, tmp_path: Path
) -> None:
    box = Models(platform, "box", image_of(tmp_path, SERVER), MODELS_MAX="2").serving
    names = [put(box, f"a/m{number}.tar.gz", number) for number in range(4)]
    assert [box.ask(name, "2") for name in names] == [0, 2, 4, 6]
    assert len(box.in_memory()) == 2
    reported = box.ask(names[3], "calls")
    assert re.fullmatch(r"/opt/ml/models/[0-9a-f]{40}/model", reported["url"])
    assert box.ask(names[3], "environment")["SAGEMAKER_MULTI_MODEL"] == "true"
    assert box.refusal(names[3], "die")["Code"] == "ModelError"
    assert box.eventually(names[3], "3") == 9
    bare = Models(platform, "bare", IMAGE).described
    assert bare["EndpointStatus"] == "Failed"
    assert "capabilities.multi-models=true" in bare["FailureReason"]


def put(models: Models, target: str, factor: float, **more: object) -> str:
    return models.put(target, {"model.json": json.dumps({"factor": factor, **more})})


def test_models_are_loaded_by_name_and_evicted_where_the_server_answers_507(mine: Models) -> None:
    names = [put(mine, f"a/m{number}.tar.gz", number) for number in range(6)]
    assert [mine.ask(name, "2") for name in names] == [0, 2, 4, 6, 8, 10]
    assert 1 <= len(mine.in_memory()) <= 3, "as many as the server takes, at most"
    assert [mine.ask(name, "3") for name in names] == [0, 3, 6, 9, 12, 15]
    reported = mine.ask(names[0], "calls")
    assert reported["own"], "the server's own model is not ours to unload"
    loads = [name for call, name in reported["calls"] if call == "load"]
    unloads = [name for call, name in reported["calls"] if call == "unload"]
    assert set(names) <= set(loads)
    assert set(unloads) <= set(names)
    assert len(unloads) >= 3


def test_each_target_model_has_its_calls_and_its_share_of_the_cost(mine: Models) -> None:
    names = {put(mine, f"cost/m{number}.tar.gz", number): number + 1 for number in range(3)}
    for name, count in names.items():
        for _ in range(count):
            mine.ask(name, "2")
    assert mine.refusal("cost/none.tar.gz", "2")["Code"]
    prices = 'currency = "EUR"\n[instances."ml.t2.medium"]\nprice_per_hour = 3600\n'
    mine.platform.home.prices.write_text(prices)

    def find_rows() -> dict[str, Any] | None:
        shown = mine.platform.cli("cost", "mine", "--by", "model", "--json").stdout
        rows = {it["name"]: it for it in json.loads(shown)["rows"]}
        found = {name: rows[name]["calls"] for name in names if name in rows}
        return rows if found == names else None

    rows = until(find_rows, "each call is counted for its model", 30)
    assert "cost/none.tar.gz" not in rows
    assert all(rows[name]["amount"] > 0 for name in names)


def test_a_models_request_has_the_headers_of_the_contract(mine: Models) -> None:
    answer = mine.runtime.invoke_endpoint(
        EndpointName="mine",
        TargetModel=put(mine, "a/headers.tar.gz", 1),
        Body=b"headers",
        ContentType="application/x-mine",
        Accept="text/csv",
        CustomAttributes="c000,1",
        InferenceId="known",
    )
    came = {name.lower(): value for name, value in json.loads(answer["Body"].read()).items()}
    wanted = {
        "content-type": "application/x-mine",
        "accept": "text/csv",
        "x-amzn-sagemaker-custom-attributes": "c000,1",
        "x-amzn-sagemaker-inference-id": "known",
        "x-amzn-sagemaker-target-model": "a/headers.tar.gz",
    }
    assert {name: came.get(name) for name in wanted} == wanted
    assert not {"authorization", "x-amz-date", "x-amz-security-token"} & came.keys()
    assert answer["CustomAttributes"] == "c000,1"


def test_memory_is_measured_where_the_server_reports_none(mine: Models) -> None:
    name = put(mine, "measured.tar.gz", 1)
    assert mine.ask(name, "1") == 1
    assert mine.known()[name]["memory_bytes"] > 0


@cases(
    "body, code, status, message",
    case("refused", "refuse 400", "ModelError", 400, "by the model"),
    case("the model's own 404", "refuse 404", "ModelError", 404, "by the model"),
    case("the model's own 409", "refuse 409", "ModelError", 409, "by the model"),
    case("overloaded", "refuse 503", "ModelError", 503, "by the model"),
    case("never enough memory", "refuse 507", "ModelError", 507, "by the model"),
    case("the server dies", "die", "ModelError", 0, ""),
)
def test_a_request_that_fails_is_a_model_error_with_the_servers_status(
    mine: Models, body: str, code: str, status: int, message: str
) -> None:
    name = put(mine, "fails.tar.gz", 5)
    other = put(mine, "other.tar.gz", 7)
    assert [mine.eventually(it, "1") for it in (name, other)] == [5, 7]
    found = mine.refusal(name, body)
    assert (found["Code"], found["status"]) == (code, status)
    assert message in found["Message"]
    assert [mine.eventually(it, "2") for it in (name, other)] == [10, 14]


@cases(
    "fault, message",
    case("refused", {"refused": "torn weights"}, "torn weights"),
    case("its load kills the server", {"dies": True}, ""),
)
def test_a_model_that_cannot_be_loaded_is_a_model_error_and_others_are_served(
    mine: Models, fault: dict[str, object], message: str
) -> None:
    other = put(mine, "good.tar.gz", 3)
    assert mine.eventually(other, "1") == 3
    found = mine.refusal(put(mine, f"{next(iter(fault))}.tar.gz", 1, **fault), "1")
    assert found["Code"] == "ModelError"
    assert message in found["Message"]
    assert mine.eventually(other, "2") == 6


def test_a_load_or_request_that_hangs_holds_up_no_other(mine: Models) -> None:
    slow = mine.platform.boto3(
        "sagemaker-runtime", retries={"total_max_attempts": 1}, read_timeout=1
    )
    hangs = put(mine, "hangs.tar.gz", 1, hangs=True)
    other = put(mine, "beside.tar.gz", 3)
    assert mine.eventually(other, "1") == 3
    for target, body in ((hangs, b"1"), (other, b"hang")):
        with pytest.raises(Exception, match=r"[Rr]ead timeout"):
            slow.invoke_endpoint(EndpointName="mine", TargetModel=target, Body=body)
    assert mine.eventually(other, "4") == 12
    assert mine.refusal(other, "die")["Code"] == "ModelError", "both end with the server"
    assert mine.eventually(other, "5") == 15


def test_a_request_for_which_the_server_has_no_memory_gets_others_evicted(mine: Models) -> None:
    names = [put(mine, f"b/m{number}.tar.gz", number) for number in range(3)]
    assert [mine.eventually(name, "1") for name in names] == [0, 1, 2]
    assert mine.eventually(names[0], "alone") <= 2
    assert names[0] in mine.in_memory()


def test_a_server_that_has_forgotten_its_models_gets_them_again(mine: Models) -> None:
    name = put(mine, "forgotten.tar.gz", 4)
    assert mine.eventually(name, "1") == 4
    mine.refusal(name, "forget")
    assert mine.eventually(name, "2") == 8


def test_the_next_agent_unloads_what_it_does_not_know_of(mine: Models) -> None:
    name = put(mine, "kept.tar.gz", 4)
    assert mine.eventually(name, "1") == 4
    mine.kill_agent()
    assert mine.eventually(name, "2") == 8  # from the server directly, where the lease holds

    def unloaded() -> bool:
        calls = mine.eventually(name, "calls")["calls"]
        return ["unload", name] in calls

    until(unloaded, "the next agent unloads the model")
    assert mine.eventually(name, "3") == 12


def test_an_unload_without_an_answer_is_named_and_asked_for_again_before_the_next_load(
    mine: Models,
) -> None:
    name = put(mine, "dropped.tar.gz", 4, unload="drops")
    assert mine.eventually(name, "1") == 4
    others = [put(mine, f"c/m{number}.tar.gz", number) for number in range(4)]
    for round_of in range(8):
        assert [mine.ask(it, "1") for it in others] == [0, 1, 2, 3], round_of
        if name in mine.stuck():
            break
    assert "DELETE /models/" in mine.stuck()[name]
    assert mine.eventually(name, "2") == 8
    assert name not in mine.stuck()


@pytest.mark.thorough
def test_no_other_model_leaves_again_for_one_that_never_fits(mine: Models) -> None:
    others = [put(mine, f"d/m{number}.tar.gz", number) for number in (1, 2)]
    large = put(mine, "large.tar.gz", 5, too_large=True)
    found = mine.refusal(large, "1")
    assert (found["Code"], found["status"]) == ("ModelError", 507)
    assert "no other model left to evict" in found["Message"]
    assert [mine.eventually(it, "1") for it in others] == [1, 2]
    time.sleep(KEPT_S)
    assert mine.refusal(large, "1")["status"] == 507
    assert mine.in_memory() >= {*others}
    put(mine, "large.tar.gz", 5)
    assert mine.eventually(large, "2") == 10, "its object is another one"


@pytest.mark.thorough
def test_an_unload_that_hangs_holds_up_neither_others_nor_the_next_agent(mine: Models) -> None:
    name = put(mine, "stays.tar.gz", 4, unload="stays")
    assert mine.eventually(name, "1") == 4
    others = [put(mine, f"e/m{number}.tar.gz", number) for number in range(4)]
    for _ in range(8):
        assert [mine.eventually(it, "1") for it in others] == [0, 1, 2, 3]
        if name not in mine.in_memory():
            break
    assert name not in mine.in_memory()
    mine.kill_agent()
    assert [mine.eventually(it, "2") for it in others] == [0, 2, 4, 6]
    assert name in mine.stuck()
    mine.refusal(others[0], "die")
    assert mine.eventually(name, "3") == 12
    assert mine.stuck() == {}
