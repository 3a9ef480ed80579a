"""The scikit-learn face: label differential privacy around any classifier or squared-error regressor."""

from labeldp.sklearn.classifier import LabelDPClassifier
from labeldp.sklearn.learner import SklearnLearner
from labeldp.sklearn.regressor import LabelDPRegressor
from labeldp.sklearn.rows import Rows
from labeldp.sklearn.search import LabelDPSearchCV

__all__ = ["LabelDPClassifier", "LabelDPRegressor", "LabelDPSearchCV", "Rows", "SklearnLearner"]
