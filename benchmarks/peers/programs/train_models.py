"""Trains models of mixed sizes: ``train_models.py FOLDER SEED SCALE FIRST STEP END``.

Runs in a runtime's own Python, from 3.8. Writes an archive for each model number of the range, and
the models' predictions for the row that every caller sends. A third each are linear (1 KB), nearest
neighbours and trees (up to 15 MB each, median 2 MB at a SCALE of 1).
"""

import io
import json
import math
import random
import sys
import tarfile

import joblib
import numpy
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor

ROW = [[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]]
NUM_TREES = 20


def trained(number, seed, scale):
    """The model of a number. The same seed gives the same model."""
    chance = random.Random(f"{seed} {number}")
    spread = min(math.exp(chance.gauss(0, 1.0)), 10.0) * scale
    kind = chance.randrange(3)
    rows = int((100, 15_000, 600)[kind] * (spread if kind else 1.0)) + 50
    draw = numpy.random.default_rng([seed, number])
    x = draw.normal(size=(rows, len(ROW[0])))
    y = x @ draw.normal(size=len(ROW[0])) + number
    model = (Ridge(), KNeighborsRegressor(), ExtraTreesRegressor(NUM_TREES, random_state=0))[kind]
    return model.fit(x, y)


def main(folder, seed, scale, numbers):
    """Write the archives, and the predictions."""
    answers = {}
    for number in numbers:
        model = trained(number, seed, scale)
        content = io.BytesIO()
        joblib.dump(model, content)
        name = f"customer-{number:04}.tar.gz"
        with tarfile.open(f"{folder}/{name}", "w:gz", compresslevel=1) as archive:
            member = tarfile.TarInfo("model.joblib")
            member.size = content.tell()
            content.seek(0)
            archive.addfile(member, content)
        answers[name] = float(model.predict(numpy.array(ROW))[0])
    with open(f"{folder}/answers-{numbers.start}.json", "w") as file:
        json.dump(answers, file)


if __name__ == "__main__":
    first, step, end = map(int, sys.argv[4:7])
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), range(first, end, step))
