"""LightGBM's parameters under any of their names: many have several, which LightGBM's own table lists.

Each is one of these:
- an argument of BoostedRanker, which alone sets it (`ARGUMENTS`)
- about how trees are grown: free to set, and stored with a model (`STORED`)
- about this machine, its files and devices: free to set, but neither stored in nor read from a model (`LOCAL`)
- all others are refused: they belong to LightGBM's command line, to its own loop or to its own network
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from numbers import Real
from typing import Any

import numpy as np

from plackett.errors import MissingDependencyError
from plackett.threads import get_num_threads, is_limited_to_one

ARGUMENTS = {
    "objective": "objective",
    "num_class": "objective",
    "num_iterations": "n_estimators",
    "learning_rate": "learning_rate",
    "num_leaves": "num_leaves",
    "max_depth": "max_depth",
    "min_data_in_leaf": "min_child_samples",
    "bagging_fraction": "subsample",
    "bagging_freq": "subsample_freq",
    "feature_fraction": "colsample_bytree",
    "lambda_l2": "reg_lambda",
    "lambda_l1": "reg_alpha",
    "max_delta_step": "max_delta_step",
    "early_stopping_round": "early_stopping_rounds",
    "metric": "eval_metric",
    "eval_at": "eval_metric",
    "monotone_constraints": "monotone_constraints",
    "categorical_feature": "categorical_features",
    "num_threads": "n_jobs",
    "seed": "random_state",
    "bagging_seed": "random_state",
    "feature_fraction_seed": "random_state",
    "extra_seed": "random_state",
    "objective_seed": "random_state",
    "drop_seed": "random_state",
}
"""Main names of LightGBM and the arguments of BoostedRanker that set them."""

STORED = frozenset((
    "boosting", "data_sample_strategy", "top_rate", "other_rate", "drop_rate", "max_drop", "skip_drop",
    "xgboost_dart_mode", "uniform_drop", "pos_bagging_fraction", "neg_bagging_fraction", "bagging_by_query",
    "feature_fraction_bynode", "extra_trees", "min_sum_hessian_in_leaf", "min_gain_to_split", "path_smooth",
    "linear_tree", "linear_lambda", "monotone_constraints_method", "monotone_penalty", "interaction_constraints",
    "feature_contri", "cegb_tradeoff", "cegb_penalty_split", "cegb_penalty_feature_lazy",
    "cegb_penalty_feature_coupled", "min_data_per_group", "max_cat_threshold", "cat_l2", "cat_smooth",
    "max_cat_to_onehot", "use_quantized_grad", "num_grad_quant_bins", "quant_train_renew_leaf", "stochastic_rounding",
    "max_bin", "max_bin_by_feature", "min_data_in_bin", "bin_construct_sample_cnt", "data_random_seed",
    "is_enable_sparse", "enable_bundle", "use_missing", "zero_as_missing", "feature_pre_filter", "boost_from_average",
    "reg_sqrt", "alpha", "fair_c", "poisson_max_delta_step", "tweedie_variance_power", "sigmoid", "is_unbalance",
    "scale_pos_weight", "lambdarank_truncation_level", "lambdarank_norm", "label_gain",
    "lambdarank_position_bias_regularization", "deterministic", "force_row_wise", "force_col_wise",
    "histogram_pool_size", "verbosity", "time_out", "saved_feature_importance_type",
))  # fmt: skip
"""Main names of parameters about trees. They open no file or connection, so a model from a stranger may set them."""

LOCAL = frozenset((
    "forcedsplits_filename", "forcedbins_filename", "device_type", "num_gpu", "gpu_platform_id", "gpu_device_id",
    "gpu_use_dp", "gpu_device_id_list",
))  # fmt: skip

_NETWORK = ("machines", "num_machines", "local_listen_port", "machine_list_filename", "tree_learner", "top_k")


@cache
def _main_names() -> Mapping[str, str]:
    try:
        from lightgbm.basic import _ConfigAliases
    except ImportError:
        raise MissingDependencyError("lightgbm", "boosted", "boosted trees") from None
    table = _ConfigAliases._get_all_param_aliases()
    return {alias: name for name, aliases in table.items() for alias in (name, *aliases)}


def main_names(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters by their main names; if two names mean the same parameter, the later wins."""
    known = _main_names()
    return {known.get(name, name): value for name, value in params.items()}


def check_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """The `lightgbm_params` of a user, checked, by main names."""
    known, given = _main_names(), dict[str, str]()
    for name, value in params.items():
        main = known.get(name)
        if main is None:
            raise ValueError(
                f"lightgbm_params must hold parameters of LightGBM, got {name!r}, which LightGBM does not know"
            )
        if main in ARGUMENTS:
            argument = ARGUMENTS[main]
            raise ValueError(
                f"lightgbm_params must not hold {name!r}, which the argument {argument} sets: pass {argument} instead"
            )
        if main in _NETWORK:
            raise ValueError(
                f"lightgbm_params must not hold {name!r}: to train on several machines use fit(..., client=)"
            )
        if main not in STORED | LOCAL:
            raise ValueError(f"lightgbm_params must not hold {name!r}, which has no effect in BoostedRanker")
        if main in given:
            raise ValueError(f"lightgbm_params must hold {main!r} once, got {given[main]!r} and {name!r}")
        _check_value(name, value)
        given[main] = name
    return main_names(params)


def remedy_for(name: str) -> str:
    """What to set in BoostedRanker in place of a parameter of LightGBM."""
    main = _main_names().get(name, name)
    if main in ARGUMENTS:
        return f"set {ARGUMENTS[main]}"
    if main in STORED | LOCAL:
        return f"set lightgbm_params={{{name!r}: ...}}"
    if main in _NETWORK:
        return "to train on several machines pass client= to fit"
    return "see help() for its parameters"


def check_stored_params(name: str, params: Any) -> None:
    """Check LightGBM's parameters in a saved model: none may open files or connections when it is fitted again."""
    if params is None:
        return
    if not isinstance(params, dict):
        raise ValueError(f"{name} must be a dict or None, got {type(params).__name__}")
    for key, value in params.items():
        if _main_names().get(key, key) not in STORED | set(ARGUMENTS):
            raise ValueError(
                f"{name} of a saved model must hold tree parameters, got {key!r}: pass it to load(path, {name}=...)"
            )
        _check_value(key, value)


def not_stored(params: Mapping[str, Any]) -> list[str]:
    """The names of parameters that are not saved with a model."""
    return [name for name in params if _main_names().get(name, name) not in STORED | set(ARGUMENTS)]


def _check_value(name: str, value: Any) -> None:
    """LightGBM gets its parameters as one string: a blank in a value would start another parameter."""
    for one in _parts(value):
        if not (one is None or isinstance(one, Real | np.bool_ | str)):
            raise ValueError(f"lightgbm_params[{name!r}] must hold numbers or strings, got {type(one).__name__}")
        if isinstance(one, str) and (" " in one or not one.isprintable()):
            raise ValueError(
                f"lightgbm_params[{name!r}] must not contain blanks or control characters, got {one[:60]!r}"
            )


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple | np.ndarray):
        for one in value:
            yield from _parts(one)
    else:
        yield value


# Leaf values


def boosting_of(params: Mapping[str, Any]) -> str:
    """gbdt, dart or rf; goss is gbdt with a choice of rows."""
    kind = str(params.get("boosting", "gbdt")).lower()
    return {"gbrt": "gbdt", "goss": "gbdt", "random_forest": "rf"}.get(kind, kind)


def has_linear_leaves(params: Mapping[str, Any]) -> bool:
    return str(params.get("linear_tree", False)).lower() in ("true", "+")


def reason_for_own_leaves(params: Mapping[str, Any]) -> str | None:
    """The parameter that makes LightGBM's own leaf values necessary, or None; `params` have main names.

    Newton steps would break monotone constraints, undo the smoothing towards parents, and set constants where leaves
    are linear; dart rescales trees afterwards, and a random forest takes their mean.
    """
    if boosting_of(params) in ("dart", "rf"):
        return f"boosting={params['boosting']!r}"
    if has_linear_leaves(params):
        return "linear_tree"
    if any(params.get("monotone_constraints") or ()):
        return "monotone_constraints"
    if float(params.get("path_smooth", 0.0)) > 0.0:
        return "path_smooth"
    return None


# Threads
#
# LightGBM's threads wait for each other many times per tree, and spin while they wait. On small data the waiting takes
# longer than the work, and if other processes need the processors it takes hundreds of times as long: a waiting thread
# uses up the time of the one it waits for. So each thread must get a minimum of work.

# From measurements on two processors (docs/boosted.md): below these a second thread gains nothing on an idle machine.
_CELLS = 100_000  # rows x features of the training data, per thread
_VISITS = 10_000  # rows x trees of a prediction, per thread


def threads_to_fit(n_jobs: int | None, X: Any, most: int | None = None) -> int:
    """Threads for training on X. `most` is the number of threads available; None: `get_num_threads()`."""
    cells = X.nnz if hasattr(X, "nnz") else X.shape[0] * X.shape[1]
    return _number_of_threads(n_jobs, cells // _CELLS, most)


def threads_to_predict(n_jobs: int | None, rows: int, trees: int) -> int:
    """Threads for predicting rows."""
    return _number_of_threads(n_jobs, rows * trees // _VISITS)


def _number_of_threads(n_jobs: int | None, shares: int, most: int | None = None) -> int:
    """`n_jobs`, up to the number of processors; -1 is all threads, -2 all but one; None or 0: by the amount of work."""
    if is_limited_to_one():
        return 1
    available = get_num_threads() if most is None else most
    if n_jobs is None or n_jobs == 0:
        return max(1, min(available, shares))
    if n_jobs < 0:
        return max(1, available + 1 + n_jobs)
    return min(n_jobs, max(available, os.cpu_count() or 1))
