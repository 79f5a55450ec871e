"""scikit-learn checks that rankers cannot pass, with the reasons."""

from typing import Any

_WEIGHTS = "weights belong to lists: within a list they must be equal"
_LISTS = "score does not guess which rows are a list"


def failures_of_rankers(_: Any) -> dict[str, str]:
    return {
        "check_fit_score_takes_y": _LISTS,
        "check_pipeline_consistency": _LISTS,
        "check_sample_weights_not_overwritten": _WEIGHTS,
        "check_sample_weight_equivalence_on_dense_data": _WEIGHTS,
        "check_sample_weight_equivalence_on_sparse_data": _WEIGHTS,
    }
