"""A search team's script for LGBMRanker: early stopping, SHAP, importances, a grid search by query."""

import lightgbm
import numpy as np
import shap
from lightgbm import LGBMRanker
from sklearn.metrics import ndcg_score
from sklearn.model_selection import GridSearchCV, GroupKFold

rng = np.random.default_rng(0)
X = rng.normal(size=(600, 6))
y = np.clip(np.round(X[:, 0] + 0.5 * X[:, 1] + 0.3 * rng.normal(size=600)), 0, 3).astype(int)
qid = np.repeat(np.arange(60), 10)
train, valid = qid < 45, qid >= 45


def sizes(groups):
    return np.unique(groups, return_counts=True)[1]


model = LGBMRanker(
    boosting_type="gbdt", n_estimators=60, learning_rate=0.2, num_leaves=7, min_child_samples=5, min_child_weight=1e-3,
    subsample_for_bin=200_000, importance_type="split", random_state=0, n_jobs=1, verbose=-1,
)  # fmt: skip
model.fit(
    X[train], y[train], group=sizes(qid[train]),
    eval_set=[(X[train], y[train]), (X[valid], y[valid])],
    eval_group=[sizes(qid[train]), sizes(qid[valid])],
    eval_names=["train", "valid"], eval_metric="ndcg", eval_at=[1, 3, 5],
    callbacks=[lightgbm.early_stopping(5, verbose=False), lightgbm.log_evaluation(0)],
)  # fmt: skip
curve = model.evals_result_["valid"]["ndcg@5"]
best = model.best_score_["valid"]["ndcg@3"]
importances = dict(zip(model.feature_name_, model.feature_importances_, strict=True))

scores = model.predict(X[valid], raw_score=True)
parts = model.predict(X[valid], pred_contrib=True)
leaves = model.predict(X[valid], pred_leaf=True)
explained = shap.TreeExplainer(model.booster_).shap_values(X[valid])
model.booster_.save_model("model.txt")
again = lightgbm.Booster(model_file="model.txt").predict(X[valid])


class QueryRanker(LGBMRanker):
    """The first column is the query, so that scikit-learn can split rows by it."""

    def fit(self, X, y):
        return super().fit(X[:, 1:], y, group=sizes(X[:, 0]))

    def predict(self, X):
        return super().predict(X[:, 1:])


def mean_ndcg(ranker, X, y):
    queries, found = X[:, 0], ranker.predict(X)
    return np.mean([ndcg_score([y[queries == q]], [found[queries == q]], k=5) for q in np.unique(queries)])


search = GridSearchCV(
    QueryRanker(n_estimators=10, min_child_samples=5, random_state=0, n_jobs=1, verbose=-1),
    {"num_leaves": [3, 7]}, cv=GroupKFold(3), scoring=mean_ndcg,
).fit(np.column_stack([qid, X]), y, groups=qid)  # fmt: skip
