"""A classifier of wines by scikit-learn; the file `kind` of the archive says which.

It is trained when it is loaded, from the data that scikit-learn brings: 178 wines of 3 cultivars.
"""

import os

from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

KINDS = {
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "bayes": GaussianNB,
    "forest": lambda: RandomForestClassifier(200, random_state=0),
}


def model_fn(model_dir):
    with open(os.path.join(model_dir, "kind")) as file:
        kind = file.read().strip()
    rows, cultivars = load_wine(return_X_y=True)
    return KINDS[kind]().fit(rows, cultivars)


def predict_fn(rows, model):
    return model.predict_proba(rows)
