"""Linter of the Helm chart, run by the interpreter of `make tools`, which has Helm as a library.

    .deploy-tools/bin/python tests/contract/deploy/check_chart.py CHART [VALUES.yaml]

Prints one JSON object: `messages` of `helm lint`, the chart's `documents`, and the `faults` that
the schemas of Kubernetes and KubeRay find in them. Exits 1 with Helm's reason if it renders none.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

# Packages of the tools' interpreter, which our type checker does not know.
helm, jsonschema, kubernetes_validate = map(
    import_module, ("helm_python", "jsonschema", "kubernetes_validate")
)
Document = dict[str, Any]
KUBERNETES = "1.31"
RAY_SCHEMA = Path(__file__).parent / "raycluster.schema.json"


def merged(below: Document, above: Document) -> Document:
    """Merge values as `helm --values` does: mappings by key, all other values are replaced."""
    both = dict(below)
    for key, value in above.items():
        inner: Any = both.get(key)
        is_mapping = isinstance(inner, dict) and isinstance(value, dict)
        both[key] = merged(inner, value) if is_mapping else value
    return both


def pods_of(cluster: Document) -> list[Document]:
    """Each pod of a Ray cluster, as a pod by Kubernetes' own schema."""
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    return [{"apiVersion": "v1", "kind": "Pod", **it["template"]} for it in groups]


def faults_of(document: Document) -> list[str]:
    """The violations of the schema of its kind."""
    name = f"{document['kind']} {document['metadata']['name']}"
    if document["kind"] == "RayCluster":
        schema = jsonschema.Draft7Validator(json.loads(RAY_SCHEMA.read_text()))
        found = [f"{name}: {it.message}" for it in schema.iter_errors(document)]
        pods = [{**it, "metadata": {"name": name, **it["metadata"]}} for it in pods_of(document)]
        return found + [fault for pod in pods for fault in faults_of(pod)]
    try:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{name}: {error.message}"]
    return []


def main() -> None:
    """Lint, render and check the chart."""
    chart, *files = sys.argv[1:]
    values: Document = {}
    for path in files:
        values = merged(values, helm.values_from_yaml(Path(path).read_text()))
    try:
        lint = helm.lint(chart, values)
        with helm.Chart.load(chart) as loaded:
            loaded.validate_schema(loaded.merge_values(values))
            texts = loaded.render(values, name="hostelry", namespace="models")
    except helm.HelmError as error:
        sys.exit(str(error))
    manifests = [text for name, text in texts.items() if name.endswith(".yaml")]
    documents = [it for text in manifests for it in yaml.safe_load_all(text) if it is not None]
    faults = [fault for it in documents for fault in faults_of(it)]
    print(json.dumps({"messages": lint["messages"], "documents": documents, "faults": faults}))


if __name__ == "__main__":
    main()
