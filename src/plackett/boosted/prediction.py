"""Scores from fitted trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import check_scores
from plackett.boosted.lightgbm_parameters import threads_to_predict
from plackett.objective import Floats

Gains = list[float] | None
"""mcrank: the gain of each class. Other objectives have no classes."""


def scores_of_predictions(predictions: Floats, gains: Gains) -> Floats:
    """The predictions of trees as scores: unchanged, or the expected gain if they are probabilities of classes."""
    if gains is None:
        return predictions
    classes = predictions.reshape(len(gains), -1).T if predictions.ndim == 1 else predictions
    # Class by class, because the rounding of a matrix product depends on the number of rows.
    return np.asarray(np.sum([gain * classes[:, grade] for grade, gain in enumerate(gains)], axis=0))


@dataclass(frozen=True)
class TreePredictor:
    """A LightGBM model, the gains of its classes, whether it is a random forest, and the number of threads wanted."""

    booster: Any
    gains: Gains
    is_forest: bool
    n_jobs: int | None

    def scores(self, X: Any, rounds: int = -1) -> Floats:
        """The scores of rows by the first rounds; -1: all of them."""
        found = self._run(X, num_iteration=rounds, raw_score=self.gains is None)
        scores = scores_of_predictions(np.asarray(found), self.gains)
        check_scores(scores, lambda _: "the sum of its leaves, which for linear trees grow with X, is too large")
        return scores

    def contributions(self, X: Any, rounds: int = -1) -> Floats:
        """SHAP values, (rows, features + 1), the constant last."""
        found = self._run(X, num_iteration=rounds, pred_contrib=True)
        return np.asarray(found.toarray() if hasattr(found, "toarray") else found)

    def leaves(self, X: Any, rounds: int = -1) -> npt.NDArray[np.int32]:
        """The leaf of each row in each tree, (rows, trees)."""
        found = np.asarray(self._run(X, num_iteration=rounds, pred_leaf=True))
        return found.reshape(X.shape[0], -1).astype(np.int32)

    def staged_scores(self, X: Any) -> Iterator[Floats]:
        """The scores after 1, 2, ... rounds."""
        total = None
        for number in range(self.booster.current_iteration()):
            step = np.asarray(self._run(X, start_iteration=number, num_iteration=1, raw_score=True))
            total = step if total is None else total + step
            raw = total / (number + 1) if self.is_forest else total.copy()
            if self.gains is None:
                yield raw
            else:
                weights = np.exp(raw - raw.max(axis=1, keepdims=True))
                yield scores_of_predictions(weights / weights.sum(axis=1, keepdims=True), self.gains)

    def _run(self, X: Any, *, num_iteration: int, **options: Any) -> Any:
        rounds = self.booster.current_iteration()
        rounds = min(rounds, num_iteration) if num_iteration > 0 else rounds
        trees = rounds * self.booster.num_model_per_iteration()
        threads = threads_to_predict(self.n_jobs, X.shape[0], trees)
        found = self.booster.predict(X, num_iteration=num_iteration, num_threads=threads, **options)
        # A random forest is the mean of its trees, but LightGBM returns the sum of raw scores and of SHAP values.
        is_sum = self.is_forest and (options.get("raw_score") or options.get("pred_contrib"))
        return found / max(1, rounds) if is_sum else found
