"""Small models of each framework, trained by the framework in its own runtime.

A program in TRAINED writes a model to the folder in its argument. It prints rows, and the
framework's own predictions for them.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

SCIKIT_LEARN = """
import json, sys, joblib, numpy
from sklearn.linear_model import LinearRegression
rows = numpy.arange(20.0).reshape(10, 2)
model = LinearRegression().fit(rows, rows @ [2.0, 3.0] + 1.0)
joblib.dump(model, sys.argv[1] + "/model.joblib")
asked = numpy.array([[1.0, 2.0], [30.0, 40.0]])
print(json.dumps({"rows": asked.tolist(), "predicted": model.predict(asked).tolist()}))
"""
XGBOOST = """
import json, sys, numpy, xgboost
rng = numpy.random.default_rng(0)
rows = rng.normal(size=(200, 4))
labels = (rows[:, 0] + rows[:, 1] > 0).astype(int)
settings = {"objective": "binary:logistic", "max_depth": 3}
model = xgboost.train(settings, xgboost.DMatrix(rows, labels), 8)
model.save_model(sys.argv[1] + "/xgboost-model.json")
asked = rows[:3]
predicted = model.predict(xgboost.DMatrix(asked))
print(json.dumps({"rows": asked.tolist(), "predicted": predicted.tolist()}))
"""
PYTORCH = """
import json, sys, warnings, torch
warnings.simplefilter("ignore")
net, rows = torch.nn.Linear(3, 2).eval(), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
torch.jit.script(net).save(sys.argv[1] + "/net.pth")
print(json.dumps({"rows": rows, "predicted": net(torch.tensor(rows)).tolist()}))
"""
TENSORFLOW = """
import json, sys, tensorflow
class Twice(tensorflow.Module):
    def __init__(self):
        self.factor = tensorflow.Variable(2.0)
    @tensorflow.function(input_signature=[tensorflow.TensorSpec([None, 2], tensorflow.float32)])
    def serve(self, x):
        return {"y": self.factor * x}
model = Twice()
signatures = {"serving_default": model.serve}
tensorflow.saved_model.save(model, sys.argv[1] + "/twice/1", signatures=signatures)
rows = [[1.0, 2.0], [3.0, 4.0]]
predicted = model.serve(tensorflow.constant(rows))["y"].numpy().tolist()
print(json.dumps({"rows": rows, "predicted": predicted}))
"""
HUGGING_FACE = """
import json, sys, transformers
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "day"]
open(sys.argv[1] + "/vocab.txt", "w").write("\\n".join(words))
tokenizer = BertTokenizerFast(sys.argv[1] + "/vocab.txt")
config = BertConfig(vocab_size=len(words), hidden_size=16, num_hidden_layers=1,
                    num_attention_heads=2, intermediate_size=16)
model = BertForSequenceClassification(config).eval()
for each in (model, tokenizer):
    each.save_pretrained(sys.argv[1])
rows = ["good day", "bad day"]
print(json.dumps({"rows": rows,
                  "predicted": transformers.pipeline("text-classification", sys.argv[1])(rows)}))
"""
AUTOGLUON = """
import json, sys, numpy, pandas
from autogluon.tabular import TabularPredictor
rng = numpy.random.default_rng(0)
table = pandas.DataFrame(rng.normal(size=(200, 3)), columns=["a", "b", "c"])
table["y"] = 3.0 * table["a"] + table["b"]
predictor = TabularPredictor("y", path=sys.argv[1], verbosity=0)
predictor.fit(table, hyperparameters={"RF": {"n_estimators": 5}}, num_cpus=1)
asked = table[["a", "b", "c"]][:3]
print(json.dumps({"rows": asked.values.tolist(), "predicted": predictor.predict(asked).tolist()}))
"""
# A step of scikit-learn, and XGBoost trees for the output of this step, in two folders.
SCALED = """
import json, os, sys, joblib, numpy
from sklearn.preprocessing import StandardScaler
folder = sys.argv[1]
os.makedirs(folder + "/prepare")
rows = numpy.random.default_rng(0).normal(size=(200, 4)) * [1, 10, 100, 1000]
scaler = StandardScaler().fit(rows)
joblib.dump(scaler, folder + "/prepare/model.joblib")
numpy.save(folder + "/scaled.npy", scaler.transform(rows))
print(json.dumps(rows[:3].tolist()))
"""
TREES = """
import json, os, sys, numpy, xgboost
folder = sys.argv[1]
os.makedirs(folder + "/trees")
scaled = numpy.load(folder + "/scaled.npy")
labels = (scaled[:, 0] + scaled[:, 1] > 0).astype(int)
settings = {"objective": "binary:logistic", "max_depth": 3}
model = xgboost.train(settings, xgboost.DMatrix(scaled, labels), 8)
model.save_model(folder + "/trees/xgboost-model.json")
print(json.dumps(model.predict(xgboost.DMatrix(scaled[:3])).tolist()))
"""
TRAINED = {
    "autogluon": AUTOGLUON,
    "huggingface": HUGGING_FACE,
    "pytorch": PYTORCH,
    "sklearn": SCIKIT_LEARN,
    "tensorflow": TENSORFLOW,
    "xgboost": XGBOOST,
}


def ran(python: Path, program: str, folder: Path) -> str:
    """Run a program that writes a model to the folder, and return its output."""
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        [str(python), "-W", "ignore", "-c", program, str(folder)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def trained(python: Path, framework: str, folder: Path) -> dict[str, Any]:
    """Write a trained model to the folder. Returns `rows`, and the `predicted` values for them."""
    found: dict[str, Any] = json.loads(ran(python, TRAINED[framework], folder).splitlines()[-1])
    return found


def trained_pipeline(prepares: Path, predicts: Path, folder: Path) -> dict[str, Any]:
    """Write both steps below the folder. Returns `rows`, and the `predicted` values for them."""
    rows = json.loads(ran(prepares, SCALED, folder).splitlines()[-1])
    return {"rows": rows, "predicted": json.loads(ran(predicts, TREES, folder).splitlines()[-1])}
