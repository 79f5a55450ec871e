"""Objectives for boosted trees, and the loop that trains them. The estimator is `plackett.BoostedRanker`.

base                          what an objective is
partition, plrank, grades, torch_losses   the objectives
objectives                    objectives by name
training, checkpoints         the boosting loop
dropin                        for training code in LightGBM or XGBoost
"""

from plackett.boosted.base import Objective
from plackett.boosted.dropin import lightgbm_metric, lightgbm_objective, xgboost_metric, xgboost_objective
from plackett.boosted.objectives import LOSS_OBJECTIVES, OBJECTIVES, make_objective, objective_names

__all__ = [
    "LOSS_OBJECTIVES",
    "OBJECTIVES",
    "Objective",
    "lightgbm_metric",
    "lightgbm_objective",
    "make_objective",
    "objective_names",
    "xgboost_metric",
    "xgboost_objective",
]
