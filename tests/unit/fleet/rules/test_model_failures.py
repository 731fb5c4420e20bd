import json

import pytest

from hostelry.fleet.agent.model_server import is_model_failure

TRANSFORMER = "/usr/lib/python3.10/site-packages/sagemaker_inference/transformer.py"
TRACE = f"""bad operand type for abs(): 'dict'
Traceback (most recent call last):
  File "{TRANSFORMER}", line 142, in transform
    result = self._run_handler_function(
  File "/opt/ml/model/code/inference.py", line 5, in predict_fn
"""
LOADING = f"""[Errno 2] No such file or directory: 'model.joblib'
Traceback (most recent call last):
  File "{TRANSFORMER}", line 123, in transform
    self.validate_and_initialize(model_dir=model_dir, context=context)
  File "{TRANSFORMER}", line 184, in validate_and_initialize
    self._model = self._run_handler_function(self._model_fn, *(model_dir,))
"""


def servers_error(message: str, kind: str = "InternalServerException") -> str:
    return json.dumps({"code": 503, "type": kind, "message": message})


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        pytest.param(503, servers_error("Prediction failed"), True, id="a handler that raises"),
        pytest.param(503, servers_error("No worker is available", "ServiceUnavailableException"),
                     False, id="no worker yet"),
        pytest.param(503, servers_error("Worker died."), False, id="a worker that died"),
        pytest.param(503, "Prediction failed", False, id="words of another server"),
        pytest.param(503, '["Prediction failed"]', False, id="another form"),
        pytest.param(503, "", False, id="no body"),
        pytest.param(500, TRACE, True, id="the toolkit's trace of a model's function"),
        pytest.param(500, LOADING, False, id="its trace of a model that does not load"),
        pytest.param(500, "Internal Server Error", False, id="a broken server"),
        pytest.param(502, TRACE, False, id="another status"),
        pytest.param(None, "", False, id="no answer"),
    ],
)  # fmt: skip
def test_the_models_code_failed(status: int | None, body: str, expected: bool) -> None:
    assert is_model_failure(status, body.encode()) is expected
