import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from statsmodels.datasets import fair

import labeldp as ldp
from labeldp.sklearn import LabelDPClassifier

table = fair.load_pandas().data  # 6,366 women were asked by a magazine, in 1974
print("This survey is public: its answers are treated here as if they were secret.")
answers = np.where(table.pop("affairs") > 0, "yes", "no")  # "did you ever have an affair?", Warner's own use case
order = np.random.default_rng(1978).permutation(len(table))  # never stratified: a split must not look at answers
train, test = order[:5000], order[5000:]
model = HistGradientBoostingClassifier(max_iter=50)  # or any other classifier

plain = model.fit(table.iloc[train], answers[train])
print(f"Without privacy: {plain.score(table.iloc[test], answers[test]):.1%} right.")

vault = ldp.LabelVault(answers[train], classes=["no", "yes"], budget="1")  # seals them; every use is charged
private = LabelDPClassifier(model, epsilon="1").fit(table.iloc[train], vault.sealed())
print(f"With epsilon 1:  {private.score(table.iloc[test], answers[test]):.1%} right.")
print(f"Saying no to all: {np.mean(answers[test] == 'no'):.1%} right.")
print(private.certificate_["guarantee"])

try:
    LabelDPClassifier(model, epsilon="0.1").fit(table.iloc[train], vault.sealed())
except ldp.BudgetExhausted as refusal:
    print(refusal)
