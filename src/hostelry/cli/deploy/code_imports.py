"""The frameworks that a model's code uses, by its imports and its requirements.txt. Pure."""

import re

from hostelry.runtimes.framework_recipes import FRAMEWORKS

MODULES = {
    "sklearn": "sklearn",
    "joblib": "sklearn",
    "xgboost": "xgboost",
    "torch": "pytorch",
    "torchvision": "pytorch",
    "tensorflow": "tensorflow",
    "keras": "tensorflow",
    "transformers": "huggingface",
    "autogluon": "autogluon",
}
IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+([A-Za-z_][A-Za-z0-9_]*)", re.MULTILINE)
# What the packages of one runtime include besides: its code may import that as well.
INCLUDED = {
    "huggingface": {"pytorch", "sklearn"},
    "autogluon": {"sklearn", "xgboost", "pytorch"},
    "pytorch": {"sklearn"},
}


def imported_frameworks(code: str, requirements: str) -> list[str]:
    """The frameworks that `code` imports, without those that another one's runtime includes.

    What requirements.txt installs needs no runtime of its own.
    """
    installed = {it.lower().replace("-", "_") for it in re.findall(r"^[\w-]+", requirements, re.M)}
    modules = [it for it in IMPORT.findall(code) if it not in installed]
    found = {MODULES[it] for it in modules if it in MODULES}
    if "joblib" in modules and "sklearn" not in modules and len(found) > 1:
        found.discard("sklearn")  # joblib alone reads what any of them wrote
    included = {it for name in found for it in INCLUDED.get(name, ())}
    return [it for it in FRAMEWORKS if it in found - included]
