"""Entrypoint and handler of an image that uses SageMaker's inference toolkit, as AWS's images do.

`serve` starts multi-model-server. Its workers load this module again for its only class.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

TOOLKIT = "sagemaker_inference"


class HandlerService:
    """The toolkit's handler. It finds code/inference.py also for many models."""

    def __init__(self) -> None:
        service = import_module(f"{TOOLKIT}.default_handler_service")
        self._service = service.DefaultHandlerService()

    def initialize(self, context: Any) -> None:
        """Load the model with its own code."""
        sys.path.append(f"{context.system_properties.get('model_dir')}/code")
        self._service.initialize(context)

    def handle(self, data: Any, context: Any) -> Any:
        """Answer a request."""
        return self._service.handle(data, context)


def main() -> None:
    """Serve the model in /opt/ml/model, or many with SAGEMAKER_MULTI_MODEL, until SIGTERM."""
    assert sys.argv[1:] == ["serve"], f"started with {sys.argv[1:]}"
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    server = import_module(f"{TOOLKIT}.model_server")
    server.start_model_server(handler_service=Path(__file__).stem)


if __name__ == "__main__":
    main()
