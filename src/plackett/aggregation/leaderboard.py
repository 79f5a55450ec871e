"""Results of a fitted model: ranks, errors, tests, ratings, tables, figures and predictions."""

from __future__ import annotations

import math
from types import NoneType
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.aggregation import inference
from plackett.aggregation.ballots import as_ballots, make_rankings
from plackett.aggregation.board_figures import calibration_figure, probability_figure
from plackett.aggregation.board_frame import make_frame
from plackett.aggregation.fitting import Estimate, WorthFit
from plackett.aggregation.groups import Board, CategoryDifference, category_differences
from plackett.aggregation.prediction import outcome_probabilities, ranking_log_probabilities
from plackett.aggregation.ratings import Ratings, rate
from plackett.aggregation.reading import choose_features
from plackett.aggregation.simultaneous import PairwiseTests, letters, pairwise_tests, significant_ranks
from plackett.aggregation.summary import COLUMNS, WorthRow, WorthSummary
from plackett.aggregation.tie_models import UNKNOWN
from plackett.aggregation.worth_figure import worth_figure
from plackett.arguments import check_choice, check_kind, check_positive
from plackett.data.comparisons import Comparisons
from plackett.data.files import check_expansion
from plackett.likelihood.partition import partition_log_likelihood
from plackett.objective import Floats

MOST_SAVED = 5000  # items: their covariance takes 200 MB
_FREE_COVARIANCE = 1 << 30  # bytes that are allowed for any number of ballots
_SAMPLES = {"simulation": 5000, "bootstrap": 500}
"""Methods of rank intervals, and their default number of draws."""


class Leaderboard:
    """The part of `plackett.RankAggregator` that uses what `fit` found; its docstring names the attributes."""

    ties: str | None
    ridge: float
    prior: float
    items_: list[Any]
    dropped_items_: list[Any]
    outside_: dict[str, list[Any]]
    scores_: Floats
    tie_parameters_: dict[str, Estimate]
    log_likelihood_: float
    null_log_likelihood_: float
    n_parameters_: int
    n_ballots_: float
    ballots_hash_: str
    coef_: Floats
    boards_: dict[Any, Any]
    _fit: WorthFit | None
    _covariance: Floats | None

    @property
    def _places_above(self) -> int:
        return len(self.outside_.get("above", ()))

    # Worths, ranks and covariance

    @property
    def worths_(self) -> Floats:
        return inference.worths_of(self._fitted())

    @property
    def rank_(self) -> npt.NDArray[np.int64]:
        return inference.ranks_of(self._fitted()) + self._places_above

    def _fitted(self) -> Floats:
        if not hasattr(self, "scores_"):
            from sklearn.utils.validation import check_is_fitted

            check_is_fitted(self, "scores_")  # raises scikit-learn's error
        return np.asarray(self.scores_)

    @property
    def covariance_(self) -> Floats:
        """(items, items), of the kind `covariance_kind_`. A ridge or prior affects the scores but is not data."""
        self._fitted()
        if self._covariance is None:
            if self._fit is None:
                raise ValueError(
                    f"the covariance of more than {MOST_SAVED:,} items is neither saved nor kept on Dask: fit the "
                    "model again in memory"
                )
            self._check_covariance()
            self._covariance = self._fit.score_covariance()
        return self._covariance

    def _check_covariance(self) -> None:
        """Refuse matrices that take far more memory than the data suggest."""
        n = len(self.items_)
        needed = 24 * n * n  # the information, its factor and its inverse
        if needed > _FREE_COVARIANCE and self._fit is not None:
            check_expansion(
                self._fit.data.likelihood.nbytes, needed, f"the covariance of {n:,} items", _FREE_COVARIANCE
            )

    @property
    def standard_errors_(self) -> Floats:
        return np.sqrt(np.diag(self.covariance_))

    @property
    def aic_(self) -> float:
        self._fitted()
        return 2.0 * self.n_parameters_ - 2.0 * self.log_likelihood_

    @property
    def bic_(self) -> float:
        self._fitted()
        return math.log(self.n_ballots_) * self.n_parameters_ - 2.0 * self.log_likelihood_

    # Inference

    def score_intervals(self, confidence: float = 0.95) -> inference.Intervals:
        """Confidence intervals of the scores, which are differences from the mean."""
        reach = inference.check_confidence(confidence) * self.standard_errors_
        return inference.Intervals(self.scores_ - reach, self.scores_ + reach)

    def worth_intervals(self, confidence: float = 0.95) -> inference.Intervals:
        """Confidence intervals of the worths, between 0 and 1."""
        return inference.worth_intervals(self._fitted(), self.covariance_, confidence)

    def rank_intervals(
        self,
        confidence: float = 0.95,
        *,
        method: str = "simulation",
        samples: int | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> inference.Intervals:
        """Confidence intervals of the ranks.

        Args:
            method: "simulation" draws scores from their normal distribution in the limit of many ballots, if the model
                holds; "bootstrap" fits the model to ballots with random weights.
            samples: None: 5,000 for the simulation, 500 for the bootstrap.
        """
        scores = self._fitted()
        inference.check_confidence(confidence)
        if method not in _SAMPLES:
            raise ValueError(f"method must be one of {', '.join(_SAMPLES)}, got {method!r}")
        samples = _SAMPLES[method] if samples is None else check_positive("samples", samples, ", or None")
        generator = np.random.default_rng(random_state)
        if method == "simulation":
            drawn = inference.simulated_scores(scores, self.covariance_, samples, generator)
        else:
            drawn = self._bootstrapped_scores(samples, generator)
        low, high = inference.rank_intervals(drawn, confidence)
        return inference.Intervals(low + self._places_above, high + self._places_above)

    def _bootstrapped_scores(self, samples: int, generator: np.random.Generator) -> Floats:
        """(samples, items), by the Bayesian bootstrap."""
        if self._fit is None:
            raise ValueError(
                "the bootstrap needs the ballots, which are neither saved nor taken from Dask: fit again in memory"
            )
        data = self._fit.data
        return np.array([data.scores(drawn) for drawn in self._fit.draw(samples, generator)])

    def difference(self, first: Any, second: Any, *, confidence: float = 0.95) -> inference.Difference:
        """The score of one item minus that of another, with its standard error, interval and p value."""
        i, j = (self._number(name) for name in (first, second))
        if i == j:
            raise ValueError(f"first and second must be different items, got {first!r} twice")
        return inference.difference(self.scores_, self.covariance_, i, j, confidence)

    def quasi_variances(self) -> inference.QuasiVariances:
        """One variance per item, for comparing any two: Var(score_i - score_j) is about their sum."""
        self._fitted()
        return inference.quasi_variances(self.covariance_, self.items_)

    def pairwise_tests(self, *, correction: str = "holm") -> PairwiseTests:
        """Tests of each pair of items; p values are corrected by "holm", "bonferroni" or not at all ("none")."""
        return pairwise_tests(self.items_, self._fitted(), self.covariance_, correction)

    def significant_ranks(self, confidence: float = 0.95, *, correction: str = "holm") -> inference.Intervals:
        """Ranks as intervals: from 1 plus the number of significantly better items to all minus the worse ones."""
        low, high = significant_ranks(self.pairwise_tests(correction=correction), confidence)
        return inference.Intervals(low + self._places_above, high + self._places_above)

    def letters(self, confidence: float = 0.95, *, correction: str = "holm") -> list[str]:
        """A compact letter display: two items share a letter exactly if they cannot be distinguished."""
        return letters(self.pairwise_tests(correction=correction), confidence)

    def ratings(
        self,
        scale: float = 400.0,
        base: float = 10.0,
        anchor: tuple[Any, float] | None = None,
        *,
        confidence: float = 0.95,
    ) -> Ratings:
        """Scores on another scale: a difference of `scale` means odds of `base` to 1, as in Elo ratings.

        The mean is 1000, unless an anchor (item, rating) fixes the rating of one item.
        """
        return rate(self.items_, self._fitted(), self.standard_errors_, scale, base, anchor, confidence)

    def to_frame(
        self,
        library: str = "pandas",
        *,
        confidence: float = 0.95,
        scale: float = 400.0,
        base: float = 10.0,
        anchor: tuple[Any, float] | None = None,
    ) -> Any:
        """The leaderboard as a DataFrame of "pandas" or "polars", best item first."""
        table = self.summary(confidence=confidence)
        columns: dict[str, Any] = {name: table.column(name).tolist() for name in COLUMNS}
        found = self.ratings(scale, base, anchor, confidence=confidence)
        groups = self.letters(confidence)
        order = [self.items_.index(item) for item in columns["item"]]
        for name, values in (("rating", found.ratings), ("rating_low", found.low), ("rating_high", found.high)):
            columns[name] = [float(values[k]) for k in order]
        columns["group"] = [groups[k] for k in order]
        return make_frame(columns, library)

    def likelihood_ratio_test(self, restricted: Leaderboard | None = None) -> inference.LikelihoodRatio:
        """Test against a nested model of the same ballots with fewer parameters; None: all worths equal."""
        self._fitted()
        null, parameters = self.null_log_likelihood_, len(self.tie_parameters_)
        check_kind("restricted", restricted, type(self), NoneType)
        if restricted is not None:
            restricted._fitted()
            null, parameters = restricted.log_likelihood_, restricted.n_parameters_
            if restricted.ballots_hash_ != self.ballots_hash_:
                raise ValueError(
                    "restricted must be fitted to the same ballots, got a model fitted to different ballots"
                )
        if self.ridge or self.prior or (restricted is not None and (restricted.ridge or restricted.prior)):
            raise ValueError("likelihood-ratio tests need maximum likelihood: ridge and prior must be 0")
        if parameters >= self.n_parameters_:
            raise ValueError(f"restricted must have fewer than {self.n_parameters_} parameters, got {parameters}")
        return inference.likelihood_ratio(null, self.log_likelihood_, self.n_parameters_ - parameters)

    # Using the model

    def predict_log_proba(self, rankings: Any, *, unranked: str = "ignore") -> Floats:
        """The logarithm of `predict_proba`."""
        scores = self._fitted()
        if isinstance(rankings, Comparisons):
            with np.errstate(divide="ignore"):  # ties that cannot happen
                return np.log(self._outcomes(rankings))
        ballots = as_ballots(rankings, self.items_)
        if unranked not in ("ignore", "last"):
            raise ValueError(f"unranked must be one of ignore, last, got {unranked!r}")
        ballots = ballots.complete() if unranked == "last" else ballots
        make_rankings(ballots)  # for its checks
        if self.ties in (None, UNKNOWN):
            return np.asarray(partition_log_likelihood(scores[ballots.items], ballots.labels, offsets=ballots.offsets))
        return ranking_log_probabilities(self.ties, scores, self.tie_parameters_, ballots)

    def predict_proba(self, rankings: Any, *, unranked: str = "ignore") -> Floats:
        """The probability of each outcome of comparisons, or of each ranking.

        `Comparisons`, with or without outcomes, give (comparisons, 3): the probabilities that the left side wins, that
        they tie, and that the right side wins. Rankings, in any form that `fit` takes, give the probability of each:
        (a, b) is a before b; ({a, b}, {c, d}) is both of the first before both of the second; with unranked="last",
        [a] is a first of all, and [{a, b}] that they take the first two places. Where ties are outcomes, [{a, b}] is a
        tie.
        """
        return np.exp(self.predict_log_proba(rankings, unranked=unranked))

    def _outcomes(self, comparisons: Comparisons) -> Floats:
        names = [self._number(name) for name in comparisons.names]
        scores = self.scores_[names]
        eta = scores[comparisons.left] - scores[comparisons.right]
        wanted = list(getattr(self, "coef_names_", ()))[getattr(self, "n_features_in_", None) or 0 :]
        if wanted:
            eta = eta + np.asarray(choose_features(comparisons, wanted).features) @ self.coef_[-len(wanted) :]
        return outcome_probabilities(self.ties, eta, self.tie_parameters_)

    def sample(
        self, n: int, *, top: int | None = None, random_state: int | np.random.Generator | None = None
    ) -> npt.NDArray[Any]:
        """n rankings drawn from the model, (n, items) names, best first; `top`: the first places only."""
        scores = self._fitted()
        check_positive("n", n)
        places = len(scores) if top is None else min(check_positive("top", top), len(scores))
        utilities = scores + np.random.default_rng(random_state).gumbel(size=(n, len(scores)))
        names = np.empty(len(scores), object)
        names[:] = self.items_
        return names[np.argsort(-utilities, axis=1)[:, :places]]

    def summary(self, *, confidence: float = 0.95, random_state: int | np.random.Generator | None = 0) -> WorthSummary:
        """A table of all items, best first, with intervals; `print` shows it."""
        worths, ranks = self.worths_, self.rank_
        low, high = self.worth_intervals(confidence)
        rank_low, rank_high = self.rank_intervals(confidence, random_state=random_state)
        errors = self.standard_errors_
        rows = [
            WorthRow(
                rank=int(ranks[i]),
                item=self.items_[i],
                worth=float(worths[i]),
                worth_low=float(low[i]),
                worth_high=float(high[i]),
                score=float(self.scores_[i]),
                standard_error=float(errors[i]),
                rank_low=int(rank_low[i]),
                rank_high=int(rank_high[i]),
            )
            for i in np.argsort(ranks, kind="stable")
        ]
        facts = {
            "ballots": self.n_ballots_,
            "log-likelihood": self.log_likelihood_,
            "AIC": self.aic_,
            "BIC": self.bic_,
            "left out": self.dropped_items_,
        }
        return WorthSummary(rows, confidence, facts, self.outside_)

    def plot(
        self,
        path: Any = None,
        *,
        kind: str = "worths",
        data: Any = None,
        confidence: float = 0.95,
        top: int | None = 100,
    ) -> Any:
        """A matplotlib Figure, saved if a path is given.

        Args:
            kind: "worths", the best `top` items with intervals; "probabilities", a heat map of the probability that the
                row wins against the column; "calibration", predicted against seen outcomes of `data`.
            data: `Comparisons` with outcomes, for "calibration".
        """
        check_choice("kind", kind, ("worths", "probabilities", "calibration"))
        if kind == "worths":
            return worth_figure(self.summary(confidence=confidence), path, top=top)
        if kind == "probabilities":
            return probability_figure(*self.win_probabilities(top), path)
        if not isinstance(data, Comparisons) or data.outcome is None:
            raise ValueError("kind='calibration' needs data=, Comparisons with outcomes")
        return calibration_figure(self.predict_proba(data), data, path)

    def win_probabilities(self, top: int | None = None) -> tuple[list[Any], Floats]:
        """The best items, and the probability that each wins against each other, (items, items), NaN on the diagonal.

        A tie, where it is an outcome, is neither a win nor a loss.
        """
        order = np.argsort(-self._fitted(), kind="stable")[:top]
        n = len(order)
        left, right = np.nonzero(~np.eye(n, dtype=bool))
        items = [self.items_[k] for k in order]
        eta = self.scores_[order][left] - self.scores_[order][right]
        found = np.full((n, n), np.nan)
        found[left, right] = outcome_probabilities(self.ties, eta, self.tie_parameters_)[:, 0]
        return items, found

    def _number(self, name: Any) -> int:
        self._fitted()
        try:
            return self.items_.index(name)
        except ValueError:
            raise ValueError(f"an item must be one of the model's {len(self.items_)}, got {name!r}") from None

    def _board(self) -> Board:
        return Board(self.items_, self.scores_, self.covariance_)

    def category_differences(self, *, correction: str = "holm") -> list[CategoryDifference]:
        """How each item's score differs between each pair of categories, with corrected p values."""
        self._fitted()
        if not getattr(self, "boards_", None):
            raise ValueError("category differences need comparisons with categories: use load_comparisons(..., by=)")
        return category_differences({name: board._board() for name, board in self.boards_.items()}, correction)
