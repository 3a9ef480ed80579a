"""diffprivlib's models on a table, in an environment of their own: `python diffprivlib_models.py JOB.npz` prints JSON.

diffprivlib does not import with current scikit-learn, so `benchmarks/tabular.py` makes an environment and calls this file in
it. Its models protect features as well as labels (neighbours differ in a whole row), which is a stronger promise than label
privacy. Features being public here, the bounds that it needs are read off them.
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import numpy as np
from diffprivlib import models

warnings.filterwarnings("ignore")  # that bounds were given is the point
LEAST = 1e-6


def main() -> None:
    job = np.load(sys.argv[1])
    X, labels, X_test = job["X"], job["labels"], job["X_test"]
    centre, spread = X.mean(axis=0), X.std(axis=0) + 1e-12
    X, X_test = ((each - centre) / spread for each in (X, X_test))
    X_test = np.clip(X_test, X.min(axis=0), X.max(axis=0))
    epsilon, draws = float(job["epsilon"]), int(job["draws"])
    makers = {
        "LogisticRegression": lambda: models.LogisticRegression(
            epsilon=epsilon, data_norm=float(np.linalg.norm(X, axis=1).max()), max_iter=500
        ),
        "GaussianNB": lambda: models.GaussianNB(epsilon=epsilon, bounds=(X.min(axis=0), X.max(axis=0))),
    }
    if "bounds" in job:
        low, high = map(float, job["bounds"])
        makers = {
            "LinearRegression": lambda: models.LinearRegression(
                epsilon=epsilon, bounds_X=(X.min(axis=0), X.max(axis=0)), bounds_y=(low, high)
            )
        }
    found = []
    for draw in range(draws):
        for name, make in makers.items():
            began = time.perf_counter()
            model = make().fit(X, labels)
            seconds = time.perf_counter() - began
            if "bounds" in job:
                error = np.clip(model.predict(X_test), low, high) - job["test_labels"]
                figures = {"rmse": float(np.sqrt(np.mean(error**2)))}
            else:
                table = np.full((len(X_test), int(job["n_classes"])), 0.0)
                table[:, model.classes_.astype(int)] = model.predict_proba(X_test)
                chance = np.maximum(table[np.arange(len(table)), job["test_labels"]], LEAST)
                right = table.argmax(axis=1) == job["test_labels"]
                figures = {"accuracy": float(right.mean()), "log_loss": float(-np.log(chance).mean())}
            found.append({"model": name, "draw": draw, "seconds": seconds, **figures})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
