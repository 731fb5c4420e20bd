"""Ray Data's batch inference: rows of CSV below a prefix through a scikit-learn model, to CSV.

Arguments: bucket, prefix, output prefix, model file, number of actors. AWS's variables lead to S3.
"""

import os
import sys

import joblib
import numpy
import pyarrow.csv
import pyarrow.fs
import ray

bucket, prefix, output, model_file, num_actors = sys.argv[1:]


class Predictor:
    """The model, which each actor loads once."""

    def __init__(self) -> None:
        self.model = joblib.load(model_file)

    def __call__(self, batch: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
        """Predictions of a batch of rows."""
        return {"predicted": self.model.predict(numpy.column_stack(list(batch.values())))}


store = pyarrow.fs.S3FileSystem(
    endpoint_override=os.environ["AWS_ENDPOINT_URL_S3"].removeprefix("http://"),
    scheme="http",
    access_key=os.environ["AWS_ACCESS_KEY_ID"],
    secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
    region=os.environ["AWS_DEFAULT_REGION"],
)
ray.init(include_dashboard=False, log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
rows = ray.data.read_csv(
    f"{bucket}/{prefix}",
    filesystem=store,
    read_options=pyarrow.csv.ReadOptions(autogenerate_column_names=True),
)
found = rows.map_batches(Predictor, batch_size=4096, concurrency=int(num_actors))
found.write_csv(f"{bucket}/{output}", filesystem=store)
