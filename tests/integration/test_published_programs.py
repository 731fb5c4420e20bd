"""Programs like AWS's published notebooks on changing models, with real XGBoost models.

Each test checks the output of one program. All run at once on one platform, as they mostly wait.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integration.framework_models import ran
from tests.integration.framework_rig import files_of, packed, runtimes_with
from tests.integration.platform import Platform, until
from tests.integration.sdk_rig import Programs, what_is_left
from tests.integration.virtual_environments import virtual_environment

from hostelry.base.runtimes import VARIABLE, runtime_python

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.timeout(1300),
]
RUNTIME, SCIKIT_LEARN = "xgboost:1.7", "sklearn:1.2"
UPDATES = ("CANARY", "LINEAR", "ROLLING")
# Two models that differ, and what both predict for the rows.
TRAIN = """
import json, os, sys, numpy, xgboost
rng = numpy.random.default_rng(0)
rows = rng.normal(size=(200, 4))
labels = (rows[:, 0] + rows[:, 1] > 0).astype(int)
predicted = {}
for name, depth in (("good", 3), ("other", 1)):
    settings = {"objective": "binary:logistic", "max_depth": depth}
    model = xgboost.train(settings, xgboost.DMatrix(rows, labels), 8)
    os.mkdir(f"{sys.argv[1]}/{name}")
    model.save_model(f"{sys.argv[1]}/{name}/xgboost-model.json")
    predicted[name] = model.predict(xgboost.DMatrix(rows[:20])).tolist()
print(json.dumps({"rows": rows[:20].tolist(), "predicted": predicted}))
"""
# The same of scikit-learn, for the notebook that captures what both answer.
TRAIN_SCIKIT_LEARN = """
import json, os, sys, joblib, numpy
from sklearn.linear_model import LinearRegression
rows = numpy.arange(24.0).reshape(12, 2)
predicted = {}
for name, factor in (("good", 1.0), ("other", 10.0)):
    model = LinearRegression().fit(rows, factor * (rows @ [2.0, 3.0] + 1.0))
    os.mkdir(f"{sys.argv[1]}/{name}")
    joblib.dump(model, f"{sys.argv[1]}/{name}/model.joblib")
    predicted[name] = model.predict(rows).tolist()
print(json.dumps({"rows": rows.tolist(), "predicted": predicted}))
"""
ENTRY_POINT = b"""
import os, joblib
def model_fn(model_dir):
    return joblib.load(os.path.join(model_dir, "model.joblib"))
"""
REASON = "the shadow is better"
BROKEN = b"def predict_fn(data, model):\n    raise RuntimeError('this version is broken')\n"


@dataclass(frozen=True, slots=True)
class Published:
    """The programs, and the models' predictions for the rows."""

    programs: Programs
    predicted: dict[str, list[float]]
    by_scikit_learn: dict[str, list[float]]


def scikit_learn_models(runtimes: Path, folder: Path) -> dict[str, list[float]]:
    """Write the input of `sdk2_shadow_experiment.py`, and return the models' predictions."""
    interpreter = runtime_python(runtimes, SCIKIT_LEARN.replace(":", "-"))
    found = json.loads(ran(interpreter, TRAIN_SCIKIT_LEARN, folder).splitlines()[-1])
    (folder / "rows.json").write_text(json.dumps(found["rows"]))
    (folder / "code").mkdir()
    names = ("good", "other")
    for name in names:
        (folder / f"{name}.tar.gz").write_bytes(packed(**files_of(folder / name)))
        (folder / "code" / f"{name}.py").write_bytes(ENTRY_POINT)
    source = packed(**{f"{name}.py": ENTRY_POINT for name in names})
    (folder / "sourcedir.tar.gz").write_bytes(source)
    predicted: dict[str, list[float]] = found["predicted"]
    return predicted


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    python = virtual_environment("sdk2", "sagemaker<3", "awscli") / "python"
    runtimes = runtimes_with(RUNTIME, SCIKIT_LEARN)
    folder = tmp_path_factory.mktemp("published")
    models = folder / "models"
    interpreter = runtime_python(runtimes, RUNTIME.replace(":", "-"))
    found = json.loads(ran(interpreter, TRAIN, models).splitlines()[-1])
    good = files_of(models / "good")
    for name, files in (
        ("good", good),
        ("other", files_of(models / "other")),
        ("broken", {**good, "code/inference.py": BROKEN}),
    ):
        (models / f"{name}.tar.gz").write_bytes(packed(**files))
    lines = (",".join(map(str, row)) for row in found["rows"])
    (models / "rows.csv").write_text("\n".join(lines))
    by_scikit_learn = scikit_learn_models(runtimes, folder / "sklearn")
    environment = {VARIABLE: str(runtimes), "HOSTELRY_CUSTOM_CODE": "trusted"}
    with Platform(
        folder / "home", "--pace", "30", "--gateway-workers", "2", environment=environment
    ) as platform:
        with Programs(platform, python, time_limit_s=1200) as started:
            for kind in UPDATES:
                started.start(kind, "sdk2_guardrails.py", kind, str(models))
            started.start("A/B", "sdk2_ab_testing.py", str(models))
            started.start("shadow", "sdk2_shadow_variant.py", str(models))
            started.start("experiment", "sdk2_shadow_experiment.py", str(folder / "sklearn"))
            yield Published(started, found["predicted"], by_scikit_learn)
            started.finish()
        until(lambda: not what_is_left(platform), "all is deleted", 60)


@pytest.mark.parametrize("kind", UPDATES)
def test_an_update_to_a_broken_model_goes_back_and_one_to_a_good_one_stays(
    published: Published, kind: str
) -> None:
    output = published.programs.output(kind)
    assert output["predicted"] == pytest.approx(published.predicted["good"][:3], abs=1e-5)
    name, broken = f"guardrails-{kind.lower()}", output["during_broken"]
    assert (output["after_broken"]["status"], output["after_broken"]["config"]) == (
        "InService",
        f"{name}-first",
    )
    assert f'"{name}-errors" went into ALARM' in output["after_broken"]["reason"]
    assert 0 < broken["failed"] < broken["answered"]
    good = output["during_good"]
    assert good["answered"] > 0
    assert good["failed"] == 0
    assert output["after_good"] == {
        "status": "InService",
        "config": f"{name}-good",
        "reason": None,
    }
    counted: dict[str, Any] = output["invocations"]
    assert min(counted[it] for it in ("first", "broken", "good")) > 0
    print(f"{kind}: {broken}, {good}, {counted}")


def test_two_variants_share_requests_by_their_weights(published: Published) -> None:
    output = published.programs.output("A/B")
    assert output["predicted"]["Variant1"] == pytest.approx(published.predicted["good"], abs=1e-5)
    assert output["predicted"]["Variant2"] == pytest.approx(published.predicted["other"], abs=1e-5)
    assert output["weights"] == [
        {"Variant1": 1.0, "Variant2": 1.0},
        {"Variant1": 25.0, "Variant2": 75.0},
        {"Variant1": 0.0, "Variant2": 1.0},
    ]
    assert output["even"]["Variant2"] / 200 == pytest.approx(0.5, abs=0.05)
    assert output["shared"]["Variant2"] / 400 == pytest.approx(0.75, abs=0.05)
    assert output["alone"] == {"Variant1": 0, "Variant2": 100}
    assert sum(output["invocations"].values()) == 740


def test_a_shadow_gets_half_of_the_requests_and_then_serves_alone(published: Published) -> None:
    output = published.programs.output("shadow")
    assert output["by_production"][:20] == pytest.approx(published.predicted["good"], abs=1e-5)
    assert output["by_shadow"] == pytest.approx(published.predicted["other"], abs=1e-5)
    assert output["metrics"]["production"]["invocations"] == 200
    assert output["metrics"]["shadow"]["invocations"] == pytest.approx(100, abs=10)
    assert output["metrics"]["shadow"]["latency"] > 0
    assert {it["errors"] for it in output["metrics"].values()} == {0}
    assert (output["variants"], output["has_shadow"]) == (["shadow"], False)


def test_an_experiment_records_what_both_answer_and_promotes_the_shadow(
    published: Published,
) -> None:
    output, predicted = published.programs.output("experiment"), published.by_scikit_learn
    assert (output["running"], output["over"]) == (["Running", None], ["Completed", REASON])
    assert output["first"] == pytest.approx(predicted["good"][0])
    assert output["answers"] == pytest.approx(predicted["good"])
    for variant, name in (("AllTraffic", "good"), ("Shadow-01", "other")):
        recorded = output["recorded"][variant]
        assert recorded == {
            str(row): pytest.approx(value) for row, value in enumerate(predicted[name])
        }
    assert output["variants"] == ["Shadow-01"]
    assert output["promoted"] == pytest.approx(predicted["other"][0])
