"""An image's entrypoint and handler as SageMaker's own images have them, by its inference toolkit.

`serve` starts multi-model-server, whose workers load this module again for its one class.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

TOOLKIT = "sagemaker_inference"


class HandlerService:
    """The toolkit's own, which finds code/inference.py also where there are many models."""

    def __init__(self) -> None:
        service = import_module(f"{TOOLKIT}.default_handler_service")
        self._service = service.DefaultHandlerService()

    def initialize(self, context: Any) -> None:
        """Load the model by its code."""
        sys.path.append(f"{context.system_properties.get('model_dir')}/code")
        self._service.initialize(context)

    def handle(self, data: Any, context: Any) -> Any:
        """The answer to a request."""
        return self._service.handle(data, context)


def main() -> None:
    """Serve what /opt/ml/model has, or many models with SAGEMAKER_MULTI_MODEL, until SIGTERM."""
    assert sys.argv[1:] == ["serve"], f"started with {sys.argv[1:]}"
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    server = import_module(f"{TOOLKIT}.model_server")
    server.start_model_server(handler_service=Path(__file__).stem)


if __name__ == "__main__":
    main()
