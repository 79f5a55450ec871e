"""How boosted trees are fitted. The estimator is `plackett.BoostedRanker`.

Start with `fitting`: `fit_trees` turns `TreeSettings` and `ListedRows` into a model, `TreePredictor` computes scores.
`trainer` is the boosting loop around LightGBM, whose parameters `lightgbm_parameters` checks. `objectives` has the
table of losses (with `plrank` and `grades`), and `position_steps` adds position biases to one. `model_text`,
`tree_checkpoints` and `onnx_export` read and write files, and `dropin` serves training code written for LightGBM or
XGBoost.
May import: `losses`, `data`, `metrics`, `likelihood` and the foundation. torch is imported only for torch losses.
"""

from plackett.boosted.dropin import lightgbm_metric, lightgbm_objective, xgboost_metric, xgboost_objective
from plackett.boosted.objectives import OBJECTIVES, make_objective, objective_names
from plackett.boosted.plrank import PLRankObjective
from plackett.objective import ListObjective, Objective

__all__ = [
    "OBJECTIVES",
    "ListObjective",
    "Objective",
    "PLRankObjective",
    "lightgbm_metric",
    "lightgbm_objective",
    "make_objective",
    "objective_names",
    "xgboost_metric",
    "xgboost_objective",
]
