"""A transform job compared with Ray Data's batch inference: the same model, rows and object store.

A platform at its defaults, a random forest, objects of rows in CSV. The job has one instance and
requests of many records (MultiRecord). Ray Data has one actor and batches of 4,096 rows, in a
separate environment with the runtime's scikit-learn. Both are timed as a user waits: from the call
of CreateTransformJob until it is Completed, and from the start of Ray's program to its end. Each
processes a few of the objects, then all. The rate is of the difference, and the start is the
remaining time of the few. Outputs are compared. Rounds alternate the order.

``python -m benchmarks.ray_data [--setting short|full] [--runtimes DIR] [--peers-dir DIR]``
"""

import argparse
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.served_models import IMAGE, ROLE, packed

from benchmarks.aims import ratio
from benchmarks.many_models_platform import client_environment, running_platform, runtime_in
from benchmarks.peers.installed import install_into, peers_folder
from benchmarks.peers.many_models import PROGRAMS, SKLEARN
from benchmarks.record import print_table, write_result
from hostelry.base.clock import monotonic_s
from hostelry.base.runtimes import runtimes_folder

SEED = 20261125
PACKAGES = ("ray[data]==2.60.0", "pyarrow==19.0.1", "pandas<3", *SKLEARN)
BUCKET, MODEL = "rows", "forest"
CODE = b"""import joblib, os
def model_fn(folder):
    return joblib.load(os.path.join(folder, "model.joblib"))
"""
TRAIN = """
import sys, joblib, numpy
from sklearn.ensemble import RandomForestRegressor
rows = numpy.random.default_rng(0).normal(size=(2000, 8))
joblib.dump(RandomForestRegressor(20, random_state=0).fit(rows, rows.sum(1)), sys.argv[1])
for number in range(int(sys.argv[3])):
    rows = numpy.random.default_rng(number + 1).normal(size=(int(sys.argv[4]), 8)).round(4)
    numpy.savetxt(f"{sys.argv[2]}/{number:03}.csv", rows, "%g", ",")
"""
JOB_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Rounds, objects of the small part and of all, and rows of each object."""

    rounds: int
    few: int
    many: int
    rows: int


SETTINGS = {
    "short": Setting(rounds=1, few=2, many=20, rows=20_000),
    "full": Setting(rounds=3, few=4, many=60, rows=20_000),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_data", description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="full")
    parser.add_argument("--runtimes", type=Path, help="default: HOSTELRY_RUNTIMES_DIR, or yours")
    parser.add_argument("--peers-dir", type=Path, help="where Ray is, or gets installed")
    arguments = parser.parse_args(argv)
    setting = SETTINGS[arguments.setting]
    runtimes = (arguments.runtimes or runtimes_folder(os.environ)).absolute()
    ray = install_into((arguments.peers_dir or peers_folder()) / "ray-data", PACKAGES)
    with tempfile.TemporaryDirectory() as name, running_platform(Path(name), runtimes) as platform:
        contest = Contest(platform, Path(name), ray, setting)
        contest.prepare(runtime_in(runtimes))
        contest.warm_up()
        rows = [contest.round(number) for number in range(setting.rounds)]
    print_table("Batch inference, seconds and rows a second", rows)
    medians = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    print_table("Medians", [medians])
    write_result("ray_data", arguments.setting, SEED, {"rounds": rows, "medians": medians})


class Contest:
    """The platform and Ray Data over the same bucket."""

    def __init__(self, platform: Any, folder: Path, ray: Path, setting: Setting) -> None:
        self._platform = platform
        self._folder = folder
        self._ray = ray
        self._setting = setting
        self._sagemaker = platform.boto3("sagemaker")
        self._s3 = platform.boto3("s3")

    def prepare(self, python: Path) -> None:
        """Put the model and the rows into the object store."""
        setting, rows = self._setting, self._folder / "rows"
        rows.mkdir()
        model = self._folder / "model.joblib"
        given = [str(model), str(rows), str(setting.many), str(setting.rows)]
        subprocess.run([python, "-c", TRAIN, *given], check=True)
        for bucket in (BUCKET, "models"):
            self._s3.create_bucket(Bucket=bucket)
        archive = packed(**{"model.joblib": model.read_bytes(), "code/inference.py": CODE})
        self._s3.put_object(Bucket="models", Key="forest.tar.gz", Body=archive)
        container = {"Image": IMAGE, "ModelDataUrl": "s3://models/forest.tar.gz"}
        self._sagemaker.create_model(
            ModelName=MODEL, ExecutionRoleArn=ROLE, PrimaryContainer=container
        )
        for number, file in enumerate(sorted(rows.iterdir())):
            for part in ("few", "many") if number < setting.few else ("many",):
                key = f"{part}/{file.name}"
                self._s3.put_object(Bucket=BUCKET, Key=key, Body=file.read_bytes())

    def warm_up(self) -> None:
        """Run each once, untimed, so that the page cache has the files that they read."""
        self._job("few", "warm-job")
        self._program("few", "warm-ray")

    def round(self, number: int) -> dict[str, float]:
        """Measure both, in an order that alternates."""
        ways: dict[str, Callable[[str, str], float]] = {"ours": self._job, "ray": self._program}
        found: dict[str, float] = {}
        for name in reversed(ways) if number % 2 else ways:
            took = {part: ways[name](part, f"{name}-{number}-{part}") for part in ("few", "many")}
            found.update(self._figures(name, took))
        sums = [self._sum(f"{name}-{number}-many/") for name in ways]
        if abs(sums[0] - sums[1]) > 1e-6 * abs(sums[0]):
            raise RuntimeError(f"the answers differ: their sums are {sums}")
        found["rate ratio"] = ratio(found["ours rows/s"], found["ray rows/s"])
        found["total ratio"] = ratio(found["ray total"], found["ours total"])
        print(found, flush=True)
        return found

    def _figures(self, name: str, took: dict[str, float]) -> dict[str, float]:
        setting = self._setting
        rate = (setting.many - setting.few) * setting.rows / (took["many"] - took["few"])
        return {
            f"{name} total": took["many"],
            f"{name} start": took["few"] - setting.few * setting.rows / rate,
            f"{name} rows/s": rate,
        }

    def _job(self, part: str, name: str) -> float:
        """Seconds of a transform job."""
        source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{part}/"}
        began_s = monotonic_s()
        self._sagemaker.create_transform_job(
            TransformJobName=name,
            ModelName=MODEL,
            BatchStrategy="MultiRecord",
            MaxPayloadInMB=1,
            MaxConcurrentTransforms=2,
            TransformInput={
                "DataSource": {"S3DataSource": source},
                "ContentType": "text/csv",
                "SplitType": "Line",
            },
            TransformOutput={
                "S3OutputPath": f"s3://{BUCKET}/{name}",
                "Accept": "text/csv",
                "AssembleWith": "Line",
            },
            TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
        )
        waiter = self._sagemaker.get_waiter("transform_job_completed_or_stopped")
        attempts = int(JOB_TIMEOUT_S / 0.2)
        waiter.wait(TransformJobName=name, WaiterConfig={"Delay": 0.2, "MaxAttempts": attempts})
        return monotonic_s() - began_s

    def _program(self, part: str, name: str) -> float:
        """Seconds of Ray's program."""
        python = self._ray / "bin/python"
        program = str(PROGRAMS / "ray_data_rows.py")
        model = str(self._folder / "model.joblib")
        variables = {
            **os.environ,
            **client_environment(self._platform),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",  # by default its workers have a low priority
        }
        began_s = monotonic_s()
        done = subprocess.run(
            [str(python), program, BUCKET, f"{part}/", name, model, "1"],
            env=variables,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=JOB_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"Ray's program failed: {done.stderr[-2000:]}")
        return monotonic_s() - began_s

    def _sum(self, prefix: str) -> float:
        """The sum of all answers below a prefix. Raises RuntimeError if a row has no answer."""
        answers: list[float] = []
        for found in self._s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ()):
            body = self._s3.get_object(Bucket=BUCKET, Key=found["Key"])["Body"].read().decode()
            lines = body.replace(",", "\n").split()
            answers += [float(it) for it in lines if it.strip('"') != "predicted"]
        wanted = self._setting.many * self._setting.rows
        if len(answers) != wanted:
            raise RuntimeError(f"{prefix} has {len(answers)} answers, not {wanted}")
        return sum(answers)


if __name__ == "__main__":
    main()
