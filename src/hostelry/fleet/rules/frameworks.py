"""AWS's prebuilt framework images, by their names: framework and runtime. Pure.

Registry, region and account do not count. The first two numbers of the tag's version name the
runtime, so that 1.2-1-cpu-py3 is served by sklearn:1.2. An image for GPUs has the same runtime,
which is built for the machine's hardware. A version without a runtime is served by the next later
runtime, because frameworks read files of their older versions. The copy's log then says so.

Source: SageMaker's registry paths of prebuilt images, and the SDK's image_uris.
"""

import re
from collections.abc import Mapping

import msgspec

from hostelry.runtimes.framework_recipes import split_version
from hostelry.runtimes.recipes import known_versions, runtime_folder

REPOSITORIES: Mapping[str, str] = {
    "sagemaker-scikit-learn": "sklearn",
    "sagemaker-xgboost": "xgboost",
    "pytorch-inference": "pytorch",
    "pytorch-inference-graviton": "pytorch",
    "tensorflow-inference": "tensorflow",
    "tensorflow-inference-graviton": "tensorflow",
    "huggingface-pytorch-inference": "huggingface",
    "autogluon-inference": "autogluon",
}
# The accounts of AWS's first algorithms, whose XGBoost was 0.72 (the tags 1 and latest).
FIRST_XGBOOST = (
    "104374241257 106583098589 226302683700 237065988967 249704162688 257386234256 272398656194 "
    "286214385809 306986355934 387376663083 390948362332 433757028032 455444449433 469771592824 "
    "475088953585 490574956308 501404015308 544295431143 628508329040 632365934929 644912444149 "
    "669576153137 680994064768 685385470294 749696950732 765400339828 811284229777 813361260812 "
    "825641698319 855470959533 867004704886 951798379941 991648021394"
)
OWN_CODE = "its parameters with code/inference.py for an image of PyTorch or scikit-learn"
ALGORITHMS: Mapping[str, str] = {
    "blazingtext": "a text classifier's model.bin is fastText's: the package fasttext in "
    "code/requirements.txt, and code/inference.py, for an image of scikit-learn",
    "factorization-machines": OWN_CODE,
    "forecasting-deepar": OWN_CODE,
    "image-classification": OWN_CODE,
    "ipinsights": OWN_CODE,
    "kmeans": "scikit-learn's KMeans with its centroids, as a joblib file for "
    "sagemaker-scikit-learn",
    "knn": "scikit-learn's KNeighborsClassifier or KNeighborsRegressor over the same rows, as a "
    "joblib file for sagemaker-scikit-learn",
    "lda": OWN_CODE,
    "linear-learner": "scikit-learn's LinearRegression or LogisticRegression with its weights, as "
    "a joblib file for sagemaker-scikit-learn",
    "ntm": OWN_CODE,
    "object-detection": OWN_CODE,
    "object2vec": OWN_CODE,
    "pca": "scikit-learn's PCA with its components, as a joblib file for sagemaker-scikit-learn",
    "randomcutforest": OWN_CODE,
    "semantic-segmentation": OWN_CODE,
    "seq2seq": OWN_CODE,
}
# The image's own version, the version of transformers, then its targets and date.
TAG = re.compile(
    r"(?P<own>[0-9]+\.[0-9]+)([.-][0-9]+)*(-transformers(?P<transformers>[0-9]+\.[0-9]+)[0-9.]*)?"
    r"(-(cpu|gpu|arm64|ec2|sagemaker|soci|py[0-9]+|cu[0-9]+|ubuntu[0-9.]+|v?[0-9][0-9.]*))*"
)
CUSTOM_CODE = "HOSTELRY_CUSTOM_CODE"
TRUSTED = "trusted"


class FrameworkImage(msgspec.Struct, frozen=True):
    """The framework that serves an image, with the versions of its runtime and of the image."""

    framework: str
    served_by: str
    version: str

    @property
    def runtime(self) -> str:
        """The runtime's folder."""
        return runtime_folder(self.framework, self.served_by)

    @property
    def note(self) -> str:
        """Describe the difference from the image. Empty if the versions are equal."""
        if self.served_by == self.version:
            return ""
        return (
            f"The image is of {self.framework} {self.version}, for which there is no runtime: it "
            f"is served by {self.framework} {self.served_by}, the next later one."
        )


def find_framework_image(repository: str, tag: str, registry: str = "") -> FrameworkImage | None:
    """The framework that serves an image, or None for other images."""
    name = repository.rpartition("/")[2]
    account = registry.partition(".dkr.ecr.")[0]
    if name == "xgboost" and account in FIRST_XGBOOST.split() and tag in ("1", "latest", ""):
        return FrameworkImage("xgboost", find_served_version("xgboost", "0.72"), "0.72")
    framework, found = REPOSITORIES.get(name), TAG.fullmatch(tag)
    if framework is None or found is None:
        return None
    version = found["transformers"] if framework == "huggingface" else found["own"]
    if version is None:
        return None
    return FrameworkImage(framework, find_served_version(framework, version), version)


def find_served_version(framework: str, version: str) -> str:
    """The version whose runtime serves an image: the first that is not older, else its own."""
    later = [it for it in known_versions(framework) if split_version(it) >= split_version(version)]
    return min(later, key=split_version, default=version)


def algorithm_note(repository: str, registry: str) -> str:
    """Describe how to serve one of AWS's built-in algorithms. Empty for other images."""
    name = repository.rpartition("/")[2]
    if name not in ALGORITHMS or ".dkr.ecr." not in registry:
        return ""
    return (
        f"{name} is a built-in algorithm of AWS, and only its own image reads its artifacts. To "
        "serve one here, run that image in a container engine (podman or docker, logged in to its "
        f"registry), or write the model for another image: {ALGORITHMS[name]}."
    )


def why_no_runtime(runtime: str) -> str | None:
    """Why a framework's runtime cannot be made, by its folder, or None if it can."""
    framework, _, version = runtime.partition("-")
    known = known_versions(framework)
    if version in known:
        return None
    return (
        f"No runtime can be made for {framework}:{version}; of {framework} there are "
        f"{', '.join(known)}. Use an image of one of these versions, or let images.toml say what "
        "runs this one."
    )


def why_not_trusted(operator: Mapping[str, str], *, no_own_user: str | None) -> str | None:
    """Why a framework's model is not run here, or None if it is.

    Its files are pickles and its functions are code. So they need a separate user, or the
    operator's word. `no_own_user` says why copies have no separate user, with the remedy, or is
    None if they have.
    """
    if no_own_user is None or operator.get(CUSTOM_CODE) == TRUSTED:
        return None
    return (
        f"The model is code (pickles, inference.py), and {no_own_user}. Then start `hostelry up` "
        f"again, or set {CUSTOM_CODE}={TRUSTED} for it if every model's author is trusted."
    )
