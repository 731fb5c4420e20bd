"""Before and after the models: fields to rows, probabilities to names."""

FIELDS = (
    "alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium", "total_phenols", "flavanoids",
    "nonflavanoid_phenols", "proanthocyanins", "color_intensity", "hue", "od280", "proline",
)  # fmt: skip
CULTIVARS = ("barolo", "grignolino", "barbera")


def rows(request):
    return [[float(wine[field]) for field in FIELDS] for wine in request["wines"]]


def named(probabilities):
    return [
        {"cultivar": CULTIVARS[row.index(max(row))], "probability": round(max(row), 4)}
        for row in probabilities
    ]
