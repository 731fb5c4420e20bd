import json

from tests.cases import case, cases

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


@cases(
    "status, body, expected",
    case("a handler that raises", 503, servers_error("Prediction failed"), True),
    case("no worker yet", 503,
        servers_error("No worker is available", "ServiceUnavailableException"), False),
    case("a worker that died", 503, servers_error("Worker died."), False),
    case("words of another server", 503, "Prediction failed", False),
    case("another form", 503, '["Prediction failed"]', False),
    case("no body", 503, "", False),
    case("the toolkit's trace of a model's function", 500, TRACE, True),
    case("its trace of a model that does not load", 500, LOADING, False),
    case("a broken server", 500, "Internal Server Error", False),
    case("another status", 502, TRACE, False),
    case("no answer", None, "", False),
)  # fmt: skip
def test_the_models_code_failed(status: int | None, body: str, expected: bool) -> None:
    assert is_model_failure(status, body.encode()) is expected
