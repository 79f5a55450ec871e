"""`evaluate` agrees with the metric functions, and refuses bad input."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from plackett import metrics
from plackett.data import RankingData, make_graded_lists
from plackett.evaluation import compare_systems, evaluate


@pytest.fixture(scope="module")
def data() -> RankingData:
    return make_graded_lists(12, mean_length=6, n_features=7, random_state=0)[0]


def test_values_agree_with_the_metrics(data: RankingData) -> None:
    systems = {"labels": data.y.astype(float), "nothing": np.zeros(len(data.y))}
    results = evaluate(data, systems, ["ndcg@3", "map"])
    assert [(result.system, result.metric) for result in results] == [
        ("labels", "ndcg@3"), ("nothing", "ndcg@3"), ("labels", "map"), ("nothing", "map"),
    ]  # fmt: skip
    functions = {
        "ndcg@3": lambda scores: metrics.ndcg(scores, data.y, k=3, offsets=data.offsets, reduction="none"),
        "map": lambda scores: metrics.average_precision(scores, data.y, offsets=data.offsets, reduction="none"),
    }
    for result in results:
        expected = functions[result.metric](systems[result.system])
        np.testing.assert_array_equal(result.values, expected)
        assert result.value == pytest.approx(np.nanmean(expected))
    assert compare_systems(results)["ndcg@3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"systems": np.zeros(3)}, r"systems must map names to scores, as in .*, got ndarray"),
        ({"metrics": "ndcg@3"}, r"metrics must be a sequence of names, such as .*, got 'ndcg@3'"),
        ({"data": np.zeros(3)}, "data must be RankingData, MultilabelData or DaskLabels, got ndarray"),
        ({"no_option": 1}, r"options must belong to one of the metrics .*, got no_option"),
        ({"metrics": ["no metric"]}, "no metric"),
        ({"metrics": 5}, r"metrics must be a sequence of names, such as .*, got 5"),
        ({"metrics": [5]}, "metrics must be str, got 5"),
        ({"metrics": []}, r"metrics must be a sequence of names, such as .*, got \[\]"),
        ({"systems": {}}, "systems must contain the scores of at least one system, got none"),
        *(
            ({name: "mean"}, rf"options must belong to one of the metrics .*, got {name}")
            for name in ("offsets", "qid", "group", "where", "reduction", "scores", "labels")
        ),
        ({"systems": {"short": np.zeros(3)}}, "scores"),
    ],
)
def test_bad_arguments_are_refused(data: RankingData, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(**{"data": data, "systems": {"nothing": np.zeros(len(data.y))}, "metrics": None, **arguments})


def test_default_metrics_leave_out_err_for_labels_that_it_is_not_defined_for(data: RankingData) -> None:
    scores = {"system": np.arange(float(len(data.y)))}
    found = {result.metric for result in evaluate(data, scores)}
    higher = {result.metric for result in evaluate(replace(data, y=data.y + 5.0), scores)}
    assert found - higher == {"err@10"}
