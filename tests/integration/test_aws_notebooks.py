"""AWS's published notebooks, unchanged, run cell by cell by `hostelry check`.

They come from AWS's repository at one commit (`aws_examples.py`). Their objects in AWS's own
buckets are put into buckets with those names: AWS's files if the repository has them, else a model
trained here. Pauses between requests and the SDK's looks at a deployment are shorter.

Lines of notebooks run at the same time. The notebooks of a line run one after another, because many
name their models by the second of creation.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.integration.aws_examples import Examples, aws_examples
from tests.integration.framework_models import ran
from tests.integration.framework_rig import files_of, packed, runtimes_with
from tests.integration.platform import CLI, Platform
from tests.integration.sdk_rig import SHORT_WAITS, make_common_bucket
from tests.integration.virtual_environments import virtual_environment

from hostelry.base.runtimes import VARIABLE, runtime_python

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.timeout(2400),
]
RUNTIMES = ("xgboost:0.90", "xgboost:1.2", "sklearn:1.0", "sklearn:1.2")
# Packages of AWS's notebook instances, so that `pip install` in notebooks finds them.
PACKAGES = (
    "sagemaker<3", "awscli", "nbclient", "ipykernel", "pandas", "matplotlib", "seaborn",
    "scikit-learn", "jsonlines",
)  # fmt: skip
NOTEBOOK_TIMEOUT_S = 1500
# The names of folders begin with spaces in AWS's repository.
DEPLOY, ARCHIVED = "     deploy_and_monitor/", " archived/"
CHURN = f"{DEPLOY}sm-a_b_testing/"
FILES = "sagemaker-example-files-prod-{region}/"
OWN_MODEL = "scikit_learn_bring_your_own_model"
CHURN_FILES = {
    f"{FILES}models/xgb-churn/{name}": f"{CHURN}model/{name}"
    for name in ("xgb-churn-prediction-model.tar.gz", "xgb-churn-prediction-model2.tar.gz")
} | {
    f"{FILES}datasets/tabular/xgb-churn/{name}": f"{CHURN}test_data/{name}"
    for name in ("test-dataset.csv", "test-dataset-input-cols.csv")
}
SHADOW_MODELS = f"{FILES}models/shadow-test-models/"
HOLDOUT = "data/holdout.csv"
POINTS = 25
LIBSVM = {
    f"{FILES}models/async-inference/demo-xgboost-model.tar.gz": "xgboost-model.tar.gz",
    **{
        f"{FILES}models/async-inference/input-files/{name}": name
        for name in (f"test_point_{it}.libsvm" for it in range(POINTS))
    },
}
# Made here for what only AWS's own buckets have. XGBoost 0.90: a model and its rows as libsvm.
TRAIN_XGBOOST = """
import sys, numpy, xgboost
rows = numpy.random.RandomState(0).normal(size=(200, 4))
model = xgboost.train({"max_depth": 3}, xgboost.DMatrix(rows, rows[:, 0] + rows[:, 1]), 8)
model.save_model(sys.argv[1] + "/xgboost-model")
for number, row in enumerate(rows[:25]):
    with open(f"{sys.argv[1]}/test_point_{number}.libsvm", "w") as file:
        file.write("0 " + " ".join(f"{index}:{value}" for index, value in enumerate(row)))
"""
# scikit-learn 1.0: both models of the shadow test, trained on the rows next to the notebook.
TRAIN_SHADOW = """
import os, sys, joblib, pandas
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
table = pandas.read_csv(sys.argv[1] + "/holdout.csv").values
boosted = HistGradientBoostingClassifier(max_iter=5, early_stopping=False)
for name, model in (("hgb", boosted), ("rf", RandomForestClassifier(10))):
    os.mkdir(f"{sys.argv[1]}/{name}")
    joblib.dump(model.fit(table[:, 1:], table[:, 0]), f"{sys.argv[1]}/{name}/model.joblib")
"""
# scikit-learn 1.2: a model of house prices, and the file in which scikit-learn keeps that data.
TRAIN_HOUSES = """
import sys, joblib, numpy
rows = numpy.random.RandomState(0).rand(400, 9)
from sklearn.linear_model import LinearRegression
joblib.dump(LinearRegression().fit(rows[:, 1:], rows[:, 0]), sys.argv[1] + "/model.joblib")
joblib.dump(rows, sys.argv[1] + "/cal_housing_py3.pkz", compress=6)
"""
# The plots of all versions of an update: the version that its image cannot load never served here,
# so that it has no metrics. On AWS it serves, and fails each request.
NEVER_SERVED = "'NoneType' object has no attribute 'index'"
GUARDRAILS = {
    "CreateEndpoint": 1,
    "InvokeEndpoint": 700,
    "PutMetricAlarm": 2,
    "DescribeAlarms": 1,
    "UpdateEndpoint": 2,
    "GetMetricStatistics": 5,
    "DeleteEndpoint": 1,
    "DeleteEndpointConfig": 3,
    "DeleteModel": 3,
    "DeleteAlarms": 1,
}
NO_OUTPUT_YET = frozenset({"NoSuchKey"})
ASYNC = {
    "CreateEndpoint": 1,
    "RegisterScalableTarget": 1,
    "PutScalingPolicy": 1,
    "InvokeEndpointAsync": 1 + POINTS,
    "DeregisterScalableTarget": 1,
    "DeleteEndpoint": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook:
    """A notebook of the repository, and its expected outcome.

    given: objects that it reads from AWS's buckets, each a file of the repository.
    made: such objects, each a file that was made here.
    cells: their number. calls: operations, and the minimum number of answered calls.
    fails: the cells that fail, and their errors. polls: errors that make it wait and call again.
    waits: limits of its waits.
    every: tables in its folder that keep only each n-th row, so that it sends fewer requests.
    """

    path: str
    cells: int
    calls: Mapping[str, int]
    given: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, str] = field(default_factory=dict)
    fails: Mapping[int, str] = field(default_factory=dict)
    polls: frozenset[str] = frozenset()
    waits: Mapping[str, str] = field(default_factory=lambda: {"SHORT_WAITS_PAUSES": "0.2"})
    every: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its file."""
        return Path(self.path).stem


def guardrails(kind: str) -> Notebook:
    """A notebook on deployment guardrails."""
    name = f"sm-deployment_guardrails_update_inference_endpoint_with_{kind}"
    return Notebook(
        path=f"{DEPLOY}{name}/{name}.ipynb",
        given=CHURN_FILES,
        cells=29,
        calls=GUARDRAILS,
        fails={20: NEVER_SERVED, 25: NEVER_SERVED},
        waits={"SHORT_WAITS_PAUSES": "0.1"},
    )


LINES = (
    (
        Notebook(
            path=f"{CHURN}sm-a_b_testing.ipynb",  # it uploads models from its own folder
            cells=24,
            calls={
                "CreateEndpoint": 1,
                "InvokeEndpoint": 1300,
                "GetMetricStatistics": 12,
                "UpdateEndpointWeightsAndCapacities": 2,
                "DeleteEndpoint": 1,
            },
            # It waits a minute for metrics. Without them its plots would fail.
            waits={"SHORT_WAITS_PAUSES": "0.2", "SHORT_WAITS_MOST_S": "60"},
        ),
    ),
    (
        Notebook(
            path=f"{DEPLOY}sm-async_inference_walkthrough/sm-async_inference_walkthrough.ipynb",
            made=LIBSVM,
            cells=20,
            calls=ASYNC,
            polls=NO_OUTPUT_YET,
        ),
        Notebook(
            path=f"{DEPLOY}sm-async_inference_with_python_sdk/sm-async_inference_with_python_sdk.ipynb",
            made=LIBSVM,
            cells=19,
            calls=ASYNC,
            polls=NO_OUTPUT_YET,
        ),
        guardrails("with_canary_traffic_shifting"),
        guardrails("linear_traffic_shifting"),
        guardrails("rolling_deployment"),
    ),
    (
        Notebook(
            path=f"{ARCHIVED}{OWN_MODEL}/{OWN_MODEL}.ipynb",
            made={f"aws-ml-blog/artifacts/{OWN_MODEL}/model.joblib": "model.joblib"},
            cells=19,
            calls={"CreateEndpoint": 1, "InvokeEndpoint": 3, "DeleteEndpoint": 1},
        ),
        Notebook(
            path=f"{DEPLOY}sm-shadow_variant_shadow_api/sm-shadow_variant_shadow_api.ipynb",
            made={
                f"{SHADOW_MODELS}hgb/model.tar.gz": "hgb.tar.gz",
                f"{SHADOW_MODELS}rf/model.tar.gz": "rf.tar.gz",
                f"{SHADOW_MODELS}sourcedir.tar.gz": "sourcedir.tar.gz",
            },
            cells=36,
            calls={
                "CreateInferenceExperiment": 1,
                "InvokeEndpoint": 1000,
                "DescribeInferenceExperiment": 3,
                "StopInferenceExperiment": 1,
                "DeleteInferenceExperiment": 1,
                "DeleteEndpoint": 1,
            },
            every={HOLDOUT: 10},
        ),
        Notebook(
            path=f"{ARCHIVED}shadow-console/Shadow_variant.ipynb",
            given=CHURN_FILES,
            cells=19,
            calls={
                "CreateEndpoint": 1,
                "InvokeEndpoint": 3300,
                "GetMetricStatistics": 14,
                "UpdateEndpoint": 1,
                "DeleteEndpoint": 1,
                "DeleteModel": 2,
            },
        ),
    ),
)
NOTEBOOKS = [it for line in LINES for it in line]


def made_here(runtimes: Path, folder: Path, examples: Examples) -> dict[str, bytes]:
    """The objects in AWS's own buckets that the repository lacks, by the table's names."""

    def trained(runtime: str, program: str, name: str) -> dict[str, bytes]:
        interpreter = runtime_python(runtimes, runtime.replace(":", "-"))
        ran(interpreter, program, folder / name)
        return files_of(folder / name)

    libsvm = trained("xgboost:0.90", TRAIN_XGBOOST, "libsvm")
    houses = trained("sklearn:1.2", TRAIN_HOUSES, "houses")
    shadow = next(it for it in NOTEBOOKS if HOLDOUT in it.every)
    beside = shadow.path.rpartition("/")[0]
    (folder / "shadow").mkdir()
    holdout = thinned(examples.file(f"{beside}/{HOLDOUT}"), shadow.every[HOLDOUT])
    (folder / "shadow" / "holdout.csv").write_bytes(holdout)
    models = trained("sklearn:1.0", TRAIN_SHADOW, "shadow")
    examples.take(f"{beside}/code", folder / "code")
    return {
        **libsvm,
        **houses,
        "xgboost-model.tar.gz": packed(**{"xgboost-model": libsvm["xgboost-model"]}),
        "hgb.tar.gz": packed(**{"model.joblib": models["hgb/model.joblib"]}),
        "rf.tar.gz": packed(**{"model.joblib": models["rf/model.joblib"]}),
        "sourcedir.tar.gz": packed(**files_of(folder / "code")),
    }


def thinned(table: bytes, every: int) -> bytes:
    """The table's head and every n-th of its rows."""
    head, *rows = table.strip().split(b"\n")
    return b"\n".join([head, *rows[::every]]) + b"\n"


def put_in_place(platform: Platform, examples: Examples, made: Mapping[str, bytes]) -> None:
    """Make the buckets that the notebooks read, with their objects."""
    objects: dict[str, bytes] = {}
    for notebook in NOTEBOOKS:
        objects |= {key: examples.file(path) for key, path in notebook.given.items()}
        objects |= {key: made[name] for key, name in notebook.made.items()}
    s3, buckets = platform.boto3("s3"), set[str]()
    for name, body in objects.items():
        bucket, _, key = name.format(region=platform.credentials.region).partition("/")
        if bucket not in buckets:
            s3.create_bucket(Bucket=bucket)
            buckets.add(bucket)
        s3.put_object(Bucket=bucket, Key=key, Body=body)


class Checks:
    """The cells of each notebook, checked in the lines of `LINES`."""

    def __init__(self, platform: Platform, examples: Examples, folder: Path) -> None:
        self._platform, self._examples, self._folder = platform, examples, folder
        self._python = virtual_environment("aws-notebooks", *PACKAGES) / "python"
        self._done: dict[str, Future[list[dict[str, Any]]]] = {}

    def start(self, pool: Executor, line: tuple[Notebook, ...]) -> None:
        """Check the notebooks of a line, each when the one before it has ended."""
        before: Future[list[dict[str, Any]]] | None = None
        for notebook in line:
            before = self._done[notebook.name] = pool.submit(self._check, notebook, before)

    def cells(self, notebook: Notebook) -> list[dict[str, Any]]:
        """The verdicts on its cells."""
        return self._done[notebook.name].result()

    def _check(
        self, notebook: Notebook, before: Future[list[dict[str, Any]]] | None
    ) -> list[dict[str, Any]]:
        if before is not None:
            before.exception()  # waits, and leaves its failure to its own test
        place, _, file = notebook.path.rpartition("/")
        folder = self._folder / notebook.name
        self._examples.take(place, folder)
        for table, every in notebook.every.items():
            (folder / table).write_bytes(thinned((folder / table).read_bytes(), every))
        where = ["--home", str(self._platform.home.root), "--python", str(self._python)]
        done = subprocess.run(
            [*CLI, "check", *where, "--json", "--keep-going", str(folder / file)],
            env={
                **self._platform.environment,
                **SHORT_WAITS,
                **notebook.waits,
                "PIP_NO_INDEX": "1",
                "SCIKIT_LEARN_DATA": str(self._folder / "houses"),
            },
            capture_output=True,
            text=True,
            timeout=NOTEBOOK_TIMEOUT_S,
            check=False,
        )
        assert done.stdout, done.stderr
        unchanged = self._examples.file(notebook.path) == (folder / file).read_bytes()
        assert unchanged, f"{notebook.path} is another file than AWS's"
        cells: list[dict[str, Any]] = json.loads(done.stdout)["cells"]
        return cells


def chosen(session: pytest.Session) -> list[tuple[Notebook, ...]]:
    """The lines of those notebooks whose tests run."""
    tests = [it for it in session.items if isinstance(it, pytest.Function)]
    of_tests = [it.callspec.params.get("notebook") for it in tests if hasattr(it, "callspec")]
    names = {it.name for it in of_tests if isinstance(it, Notebook)}
    return [tuple(it for it in line if it.name in names) for line in LINES]


@pytest.fixture(scope="module")
def checks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Checks]:
    examples = aws_examples()
    runtimes, folder = runtimes_with(*RUNTIMES), tmp_path_factory.mktemp("notebooks")
    made = made_here(runtimes, folder, examples)
    environment = {VARIABLE: str(runtimes), "HOSTELRY_CUSTOM_CODE": "trusted"}
    home = tmp_path_factory.mktemp("aws") / "home"
    with Platform(
        home, "--pace", "30", "--gateway-workers", "2", environment=environment
    ) as platform:
        make_common_bucket(platform)
        put_in_place(platform, examples, made)
        checked = Checks(platform, examples, folder)
        with ThreadPoolExecutor(len(NOTEBOOKS)) as pool:
            for line in chosen(request.session):
                checked.start(pool, line)
            yield checked
        assert not platform.boto3("sagemaker").list_endpoints()["Endpoints"]


@pytest.mark.parametrize(
    "notebook", [pytest.param(it, id=f"{it.name} runs as it is published") for it in NOTEBOOKS]
)
def test_a_notebook_of_aws(checks: Checks, notebook: Notebook) -> None:
    cells = checks.cells(notebook)
    failed = {it["cell"]: it["error"] for it in cells if it["error"]}
    print(json.dumps(cells, indent=1))
    assert len(cells) == notebook.cells
    assert failed.keys() == notebook.fails.keys(), failed
    for number, error in notebook.fails.items():
        assert error in failed[number]
    calls = [call for cell in cells for call in cell["calls"]]
    others = [it for it in calls if it["result"] != "ok" and it.get("error") not in notebook.polls]
    assert others == []
    answered = Counter[str]()
    for call in calls:
        if call["result"] == "ok":
            answered[call["operation"]] += call["count"]
    for operation, count in notebook.calls.items():
        assert answered[operation] >= count, (operation, answered)
