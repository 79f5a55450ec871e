"""RankAggregator: worths of items from rankings."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from plackett.aggregation import inference
from plackett.aggregation.ballots import as_ballots, check_names, make_rankings
from plackett.aggregation.board_figures import calibration_figure, probability_figure
from plackett.aggregation.board_frame import make_frame
from plackett.aggregation.connectivity import REASONS
from plackett.aggregation.covariances import COVARIANCES
from plackett.aggregation.evidence import Evidence
from plackett.aggregation.fitting import Estimate, Settings, Warm, WorthFit, fit_worths
from plackett.aggregation.groups import Board, CategoryDifference, category_differences, deviation_variance
from plackett.aggregation.prediction import outcome_probabilities, ranking_log_probabilities
from plackett.aggregation.ratings import Ratings, rate
from plackett.aggregation.reading import Reading, choose_features, read_evidence
from plackett.aggregation.simultaneous import PairwiseTests, letters, pairwise_tests, significant_ranks
from plackett.aggregation.solvers import SOLVERS
from plackett.aggregation.summary import COLUMNS, WorthRow, WorthSummary
from plackett.aggregation.tie_models import TIE_MODELS, UNKNOWN, question_of_ballots
from plackett.aggregation.voters import Voter, fit_voters
from plackett.aggregation.worth_figure import worth_figure
from plackett.arguments import (
    as_numbers,
    check_choice,
    check_count,
    check_finite,
    check_kind,
    check_positive,
    check_range,
    type_and_shape,
)
from plackett.data.comparisons import Comparisons, concatenate_comparisons, reduced, used_items
from plackett.data.files import check_expansion
from plackett.data.untrusted import parse_arrays, regular_file
from plackett.distributed import are_dask
from plackett.estimators.parameter_checks import Check, above_zero, or_none, seed
from plackett.estimators.persistence import WORTHS, SavedModel, check_numbers, field
from plackett.likelihood.partition import partition_log_likelihood

Floats = npt.NDArray[np.float64]

_MOST_SAVED = 5000  # items: their covariance takes 200 MB
_FREE_COVARIANCE = 1 << 30  # bytes that are allowed for any number of ballots
_SAMPLES = {"simulation": 5000, "bootstrap": 500}
"""Methods of rank intervals, and their default number of draws."""


class RankAggregator(SavedModel):
    """Worths of items from rankings by the Plackett-Luce model: full, partial, in tiers, weighted.

    An item of worth v comes before one of worth u with probability v / (v + u). Items of a tier share a place and their
    order is unknown: a ranking in tiers has the sum of the probabilities of all orders that agree with it.

    Args:
        ties: the meaning of a tie: "unknown" (an order that was not seen), "davidson" (an outcome; lists: dead heats),
            "rao-kupper" (a difference below a threshold; pairs) or "half" (half a win each; pairs). None: "unknown" for
            rankings; for comparisons that hold ties, an error that explains the choice.
        max_tie: the largest dead heat of lists. None: the largest in the data.
        covariance: "model", "sandwich", "cluster" or "bootstrap". None: "cluster" if there are clusters, else "model".
        voters: "reliability": the utilities of each voter (cluster) are scaled by a factor, in `voters_`.
        groups: boards of categories are "separate", or "shared": drawn to the board of all.
        half_life, window: the age at which a comparison counts half, and beyond which it does not count.
        feature_ridge: ridge of the coefficients of comparisons' features.
        bootstrap_samples, random_state: rounds and seed of the bootstrap.
        solver: "newton", "lbfgs", "mm" (Hunter 2004), "em" (for graphs), or "auto": Newton unless its matrices would
            cost more, and "em" for graphs.
        ridge: ridge / 2 times the sum of squared scores (or coefficients) is subtracted from the log-likelihood.
        prior: every item beats, and loses to, an artificial item this many times. This makes all worths finite and
            draws them together; 0.5 is customary. 0: no prior.
        unranked: items that a ballot leaves out are "ignore"d, or tied "last".
        on_infinite: if the maximum likelihood estimate does not exist, "drop" leaves out the items that cause it, with
            a warning; "error" raises an error that names them.
        tol: largest `residual_` at the maximum.
        max_iter: largest number of iterations of the solver.

    Attributes:
        items_: the names of the items; dropped_items_: the names of those left out; outside_: these by their relation
            to the others, "above" (none of these beats them), "below" (they beat none of these), "apart" or "unranked".
        scores_: log-worths, with mean zero; worths_: with sum one.
        rank_: from 1, after the items left out "above"; items whose scores differ by less than 1e-9, which is rounding,
            share the first of their places.
        covariance_, standard_errors_: those of the scores (as deviations from their mean), computed on first use.
        tie_parameters_: estimates of the tie parameters by name, with standard errors.
        coef_, coef_standard_errors_, coef_names_: of item features, so that scores are X @ coef_, then of comparisons'
            features.
        boards_: one fitted model per category; voters_: reliability of voters.
        log_likelihood_, null_log_likelihood_ (all worths equal), aic_, bic_, n_parameters_, n_ballots_.
        ballots_hash_: a hash that models of the same ballots share.
        converged_, n_iter_, solver_, residual_ (the largest gradient, in standard errors, or in those of ballots that
            weigh 1 if they weigh less on average).

    >>> model = RankAggregator().fit([["ale", "beer", "cider"], ["beer", {"ale", "cider"}], ["cider", "ale"]])
    >>> model.items_, model.worths_.round(3)
    (['ale', 'beer', 'cider'], array([0.219, 0.61 , 0.171]))
    >>> model.predict_proba([["beer", "ale"], ["beer", {"ale", "cider"}]]).round(3)
    array([0.736, 0.61 ])
    """

    parameter_kinds: ClassVar[Mapping[str, Check]] = {
        "ties": partial(check_choice, choices=(None, *TIE_MODELS)),
        "max_tie": or_none(partial(check_count, least=2)),
        "covariance": partial(check_choice, choices=(None, *COVARIANCES)),
        "bootstrap_samples": partial(check_count, least=2),
        "voters": partial(check_choice, choices=(None, "reliability")),
        "groups": partial(check_choice, choices=("separate", "shared")),
        "half_life": or_none(above_zero),
        "window": or_none(above_zero),
        "feature_ridge": partial(check_range, least=0.0),
        "random_state": seed,
    }

    def __init__(
        self,
        *,
        ties: str | None = None,
        max_tie: int | None = None,
        covariance: str | None = None,
        voters: str | None = None,
        groups: str = "separate",
        half_life: float | None = None,
        window: float | None = None,
        solver: str = "auto",
        ridge: float = 0.0,
        feature_ridge: float = 0.0,
        prior: float = 0.0,
        unranked: str = "ignore",
        on_infinite: str = "drop",
        bootstrap_samples: int = 1000,
        random_state: Any = 0,
        tol: float = 1e-6,
        max_iter: int = 1000,
    ) -> None:
        self.ties = ties
        self.max_tie = max_tie
        self.covariance = covariance
        self.voters = voters
        self.groups = groups
        self.half_life = half_life
        self.window = window
        self.solver = solver
        self.ridge = ridge
        self.feature_ridge = feature_ridge
        self.prior = prior
        self.unranked = unranked
        self.on_infinite = on_infinite
        self.bootstrap_samples = bootstrap_samples
        self.random_state = random_state
        self.tol = tol
        self.max_iter = max_iter

    # Fitting

    def fit(
        self,
        ballots: Any,
        y: None = None,
        *,
        X: Any = None,
        features: Any = None,
        sample_weight: Any = None,
        cluster: Any = None,
    ) -> Self:
        """Estimate the worths.

        Args:
            ballots: `Comparisons` (from `plackett.data.load_comparisons`); or `Ballots`; or `PreferenceGraphs`, of
                which each list is a voter's known preferences (docs/preferences.md); or a sequence of rankings,
                each a sequence of items, best first, in which a set, list or tuple is a tier (so pairs are (winner,
                loser)); or a 2-D array or tensor with a ranking in each row; or a `RankingData` whose ids are the items
                and whose lists are ballots (from `plackett.data.from_frame`). A Dask bag or array of such rankings, or
                a list of delayed partitions in any of these forms, stays on the cluster (docs/dask.md). Missing items,
                masked arrays, and arrays with negative numbers, which look like padding, are errors.
            y: must be None; for compatibility with scikit-learn.
            X: features of the items: scores are then X @ coef_. A DataFrame of pandas whose index holds the names of
                the items, in any order; or an array, (items, features), in the order of the names.
            features: features of the comparisons: names among those of `Comparisons`, or an array or table with the
                features of the left side less those of the right side, one row per comparison. Default: all that the
                comparisons have.
            sample_weight: how often each ballot was cast, times its own weight.
            cluster: the voter of each ballot, or whatever makes ballots depend on each other, for standard errors;
                comparisons may hold theirs.

        Ballots of weight 0 hold no information and are left out, and so are ballots with a single tier where ties are
        unknown orders; a warning gives the number of those that tie all their items. Items that no other ballot ranks
        are left out as well, with a warning, unless there is X.
        """
        if y is not None:
            raise ValueError("y must be None, because ballots hold their order: pass weights as sample_weight=")
        self._check_parameters(X)
        self._fit_data(ballots, X, features, sample_weight, cluster)
        if isinstance(ballots, Comparisons):
            weighed = isinstance(sample_weight, NoneType) and isinstance(cluster, NoneType)
            self._source = reduced(ballots) if weighed and features is None and X is None else None
            if ballots.by is not None:
                self._fit_groups(ballots, features, sample_weight)
        return self

    def _fit_data(
        self,
        ballots: Any,
        X: Any = None,
        features: Any = None,
        sample_weight: Any = None,
        cluster: Any = None,
        centre: Any = None,
    ) -> None:
        """Fit one board."""
        start = None
        for name in (
            "coef_",
            "coef_standard_errors_",
            "coef_names_",
            "n_features_in_",
            "boards_",
            "voters_",
            "_source",
        ):
            if hasattr(self, name):
                delattr(self, name)
        if self.voters is not None and X is not None:
            raise ValueError("voters='reliability' takes no X: leave out one of them")
        evidence = self._read(ballots, features, sample_weight, cluster)
        X_names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
        X = None if X is None else _check_features(X, evidence.names)
        self._check_evidence(evidence)
        if self.voters is None:
            fit = fit_worths(evidence, X, self._settings(), start, centre)
        else:
            fit, self.voters_ = fit_voters(evidence, self._settings())
        self._take(fit)
        if X is not None:
            self.n_features_in_ = X.shape[1]
            X_names = X_names or [f"x{k + 1}" for k in range(X.shape[1])]
        if names := [*(X_names or []), *fit.evidence.feature_names]:
            self.coef_names_ = names
            self.coef_, self.coef_standard_errors_ = fit.coefficients()

    def _warm(self) -> Warm | None:
        """Where `partial_fit` starts."""
        fit = getattr(self, "_fit", None)
        if fit is None or fit.data.X is not None or not getattr(self, "_starts_warm", False):
            return None
        return Warm(dict(zip(self.items_, self.scores_, strict=True)), fit.parameters[fit.data.head :])

    def _fit_groups(self, data: Comparisons, features: Any, sample_weight: Any) -> None:
        """One board per category; shared ones are drawn to the board of all by the variance between them."""
        weights = None if sample_weight is None else np.asarray(sample_weight)
        self.boards_: dict[Any, RankAggregator] = {}
        for name, part in data.categories().items():
            chosen = None if weights is None or data.by is None else weights[data.by.codes == data.by.names.index(name)]
            self.boards_[name] = self._fit_part(name, part, features, chosen, {})
        if self.groups == "shared" and len(self.boards_) > 1:
            boards = {name: board._board() for name, board in self.boards_.items()}
            ridge = 1.0 / deviation_variance(boards, self._board())
            centre = dict(zip(self.items_, self.scores_, strict=True))
            for name, part in data.categories().items():
                known = part.select(np.isin(part.left, self._codes(part)) & np.isin(part.right, self._codes(part)))
                self.boards_[name] = self._fit_part(name, known, features, None, {"ridge": ridge}, centre)

    def _codes(self, part: Comparisons) -> list[int]:
        known = set(self.items_)
        return [code for code, name in enumerate(part.names) if name in known]

    def _fit_part(
        self, name: Any, part: Comparisons, features: Any, weights: Any, options: dict[str, Any], centre: Any = None
    ) -> RankAggregator:
        board = clone(self).set_params(voters=None, **options)
        try:
            if board.covariance is None and part.cluster is not None and len(part.cluster.used().names) < 2:
                board.covariance = "sandwich"
            board._fit_data(used_items(part), features=features, sample_weight=weights, centre=centre)
        except ValueError as error:
            raise ValueError(f"category {name!r} cannot be fitted: {error}. Leave it out, or give a prior") from error
        return board

    def _board(self) -> Board:
        return Board(self.items_, self.scores_, self.covariance_)

    def category_differences(self, *, correction: str = "holm") -> list[CategoryDifference]:
        """How each item's score differs between every two categories, with corrected p values."""
        self._fitted()
        if not getattr(self, "boards_", None):
            raise ValueError("category differences need comparisons with categories: use load_comparisons(..., by=)")
        return category_differences({name: board._board() for name, board in self.boards_.items()}, correction)

    def partial_fit(self, ballots: Any, y: None = None) -> Self:
        """Add comparisons to those of a fitted model, and fit again from where it is.

        Without features, clusters, times and categories a model keeps counts, which it also saves, and the result is
        that of a fit to all comparisons; otherwise it keeps the comparisons, until it is saved.
        """
        if not isinstance(ballots, Comparisons):
            raise ValueError(f"partial_fit takes Comparisons, got {type_and_shape(ballots)}")
        source = getattr(self, "_source", None)
        if source is None and not hasattr(self, "scores_"):
            return self.fit(ballots, y)
        if source is None:
            raise ValueError("partial_fit needs the comparisons of the fit, which this model does not keep: fit again")
        self._starts_warm = True
        try:
            return self.fit(concatenate_comparisons(source, reduced(ballots)), y)
        finally:
            self._starts_warm = False

    def _settings(self) -> Settings:
        return Settings(**{field.name: getattr(self, field.name) for field in fields(Settings)})

    def _check_evidence(self, evidence: Evidence) -> None:
        if evidence.ballots == 0:
            raise ValueError("ballots must rank at least one item above another, got none of weight above 0 that does")
        if evidence.tied_weight:
            tied, cast = evidence.tied_weight, evidence.tied_weight + evidence.weight
            warnings.warn(
                f"{tied:,.10g} of {cast:,.10g} ballots ({tied / cast:.1%}) are ties of two items, or of all that "
                "they rank: they hold no information in this model, where a tie is an unknown order, and are left out",
                stacklevel=3,
            )

    def _take(self, fit: WorthFit) -> None:
        """Set the fitted attributes."""
        self._fit: WorthFit | None = fit
        self.items_, self.dropped_items_, self.outside_ = fit.names, fit.dropped, fit.outside
        self.scores_ = fit.scores
        self.solver_, self.covariance_kind_ = fit.solver, fit.covariance_kind
        solution = fit.solution
        self.residual_, self.n_iter_, self.converged_ = solution.residual, solution.steps, solution.converged
        self.ballots_hash_ = fit.evidence.hash()
        self.log_likelihood_ = fit.log_likelihood()
        self.null_log_likelihood_ = fit.data.likelihood.null_value()
        self.n_parameters_, self.n_ballots_ = fit.count_parameters(), fit.evidence.weight
        self.tie_parameters_ = fit.tie_parameters()
        self._covariance: Floats | None = None
        if not fit.evidence.stays:
            if len(self.items_) <= _MOST_SAVED:
                self._covariance = self.covariance_
            self._fit = None

    def _check_parameters(self, X: Any) -> None:
        for name, choices in (
            ("solver", SOLVERS),
            ("unranked", ("ignore", "last")),
            ("on_infinite", ("error", "drop")),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        for name in ("ridge", "prior", "tol"):
            value = getattr(self, name)
            if not isinstance(value, int | float | np.number) or not 0.0 <= value < math.inf:
                raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
        self._check_kinds()
        check_positive("max_iter", self.max_iter)
        if self.solver == "mm" and (self.ridge or X is not None or self.ties not in (None, UNKNOWN)):
            raise ValueError(
                "solver 'mm' takes neither ridge nor X nor tie parameters: choose another solver, or a prior in place "
                "of ridge"
            )
        if self.prior and X is not None:
            raise ValueError("prior must be 0 with item features X: use ridge")

    def _read(self, ballots: Any, features: Any, sample_weight: Any, cluster: Any) -> Evidence:
        if isinstance(ballots, Comparisons):
            ballots = choose_features(ballots, features)
        elif features is not None:
            raise ValueError("features belong to comparisons: pass Comparisons, or item features as X=")
        if are_dask(ballots):
            return self._read_dask(ballots, sample_weight, cluster)
        reading = Reading(
            self.ties, self.max_tie, self.unranked, self.half_life, self.window, random_state=self.random_state
        )
        return read_evidence(ballots, reading, sample_weight, cluster)

    def _read_dask(self, ballots: Any, sample_weight: Any, cluster: Any) -> Evidence:
        from plackett.distributed.dask_aggregation import read_partitions

        if self.ties not in (None, UNKNOWN) or cluster is not None:
            raise ValueError("ballots on Dask take neither ties other than 'unknown' nor cluster: fit in memory")
        evidence = read_partitions(ballots, sample_weight, self.unranked)
        if self.ties is None and evidence.tied_pairs:
            raise ValueError(question_of_ballots(evidence.tied_pairs, evidence.tied_weight + evidence.weight))
        return evidence

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
        check_is_fitted(self, "scores_")
        return np.asarray(self.scores_)

    @property
    def covariance_(self) -> Floats:
        """(items, items), of the kind `covariance_kind_`. A ridge or prior is in the scores, but is no data here."""
        self._fitted()
        if self._covariance is None:
            if self._fit is None:
                raise ValueError(
                    f"the covariance of more than {_MOST_SAVED:,} items is neither saved nor kept on Dask: fit the "
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
                "the bootstrap needs the ballots, which are not saved and stay on Dask: fit the model again in memory"
            )
        data = self._fit.data
        return np.array([data.scores(drawn) for drawn in self._fit.draw(samples, generator)])

    def difference(self, first: Any, second: Any, *, confidence: float = 0.95) -> inference.Difference:
        """The score of one item less that of another, with its standard error, interval and p value."""
        i, j = (self._number(name) for name in (first, second))
        if i == j:
            raise ValueError(f"first and second must be different items, got {first!r} twice")
        return inference.difference(self.scores_, self.covariance_, i, j, confidence)

    def quasi_variances(self) -> inference.QuasiVariances:
        """One variance per item, for comparing any two: Var(score_i - score_j) is about their sum."""
        self._fitted()
        return inference.quasi_variances(self.covariance_, self.items_)

    def pairwise_tests(self, *, correction: str = "holm") -> PairwiseTests:
        """Tests of every two items; p values are corrected by "holm", "bonferroni" or not at all ("none")."""
        return pairwise_tests(self.items_, self._fitted(), self.covariance_, correction)

    def significant_ranks(self, confidence: float = 0.95, *, correction: str = "holm") -> inference.Intervals:
        """Ranks as intervals: 1 plus the items that are significantly better, to all less those that are worse."""
        low, high = significant_ranks(self.pairwise_tests(correction=correction), confidence)
        return inference.Intervals(low + self._places_above, high + self._places_above)

    def letters(self, confidence: float = 0.95, *, correction: str = "holm") -> list[str]:
        """A compact letter display: two items share a letter exactly if they cannot be told apart."""
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

    def likelihood_ratio_test(self, restricted: RankAggregator | None = None) -> inference.LikelihoodRatio:
        """Against a model of the same ballots with fewer parameters that this one contains; None: all worths equal."""
        self._fitted()
        null, parameters = self.null_log_likelihood_, len(self.tie_parameters_)
        check_kind("restricted", restricted, RankAggregator, NoneType)
        if restricted is not None:
            check_is_fitted(restricted, "scores_")
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

    # On disk

    def _save_state(self, folder: Path) -> dict[str, Any]:
        arrays, state = self._described("")
        state["boards"] = []
        for number, (name, board) in enumerate(getattr(self, "boards_", {}).items()):
            own, described = board._described(f"board{number}_")
            arrays |= own
            state["boards"].append({"name": name, **described})
        source = getattr(self, "_source", None)
        if source is not None and _is_reduced(source):
            arrays |= {"pairs": np.stack([source.left, source.right]).astype(np.float64)}
            arrays |= {"outcomes": source.outcome.astype(np.float64), "counts": source.weights}
            _check_saved(list(source.names))
            state["pair_names"] = list(source.names)
        np.savez(folder / WORTHS, **arrays)
        return state

    def _described(self, prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arrays and the other facts of one board."""
        _check_saved(self.items_ + self.dropped_items_)
        arrays: dict[str, Any] = {"scores": self.scores_}
        if len(self.items_) <= _MOST_SAVED:
            arrays["covariance"] = self.covariance_
        if hasattr(self, "coef_"):
            arrays |= {"coef": self.coef_, "coef_standard_errors": self.coef_standard_errors_}
        if self.tie_parameters_:
            arrays["ties"] = np.array(list(self.tie_parameters_.values()), np.float64)
        _check_arrays(arrays)
        state = {
            "items": self.items_,
            "dropped_items": self.dropped_items_,
            "outside": self.outside_,
            "covariance_kind": self.covariance_kind_,
            "tie_parameters": list(self.tie_parameters_),
            "coef_names": getattr(self, "coef_names_", []),
            "voters": [[v.name, v.comparisons, v.reliability, v.gain] for v in getattr(self, "voters_", [])],
            **{name: getattr(self, f"{name}_") for name in _FACTS},
        }
        return {prefix + name: array for name, array in arrays.items()}, state

    def _load_state(self, folder: Path, state: dict[str, Any]) -> None:
        check_choice("ties", self.ties, choices=(None, *TIE_MODELS))
        with regular_file(folder / WORTHS).open("rb") as file:
            arrays = parse_arrays(file)
        state = _OLDER | state
        boards = field(state, "boards", list)
        own = {name: array for name, array in arrays.items() if not name.startswith("board")}
        counts: dict[str, Any] = {name: own.pop(name) for name in ("pairs", "outcomes", "counts") if name in own}
        self._restore(own, state)
        if counts:
            self._source = _restored_source(counts, field(state, "pair_names", list))
        if boards:
            self.boards_ = {}
        for number, described in enumerate(boards):
            prefix = f"board{number}_"
            part = {n.removeprefix(prefix): array for n, array in arrays.items() if n.startswith(prefix)}
            board = clone(self)
            board._restore(part, _OLDER | described)
            self.boards_[field(described, "name", str, int, float)] = board

    def _restore(self, arrays: dict[str, Any], state: dict[str, Any]) -> None:
        self.items_, self.dropped_items_ = field(state, "items", list), field(state, "dropped_items", list)
        check_names(self.items_)
        _check_saved(self.items_ + self.dropped_items_)
        self.outside_ = field(state, "outside", dict)
        _check_outside(self.outside_, self.dropped_items_)
        n = len(self.items_)
        ties, names = field(state, "tie_parameters", list), field(state, "coef_names", list)
        check_texts("tie_parameters", ties)
        check_texts("coef_names", names)
        names = names or [f"x{k + 1}" for k in range(getattr(self, "n_features_in_", None) or 0)]
        self.covariance_kind_ = field(state, "covariance_kind", str)
        shapes = {"scores": (n,), "covariance": (n, n), "coef": (len(names),), "ties": (len(ties), 2)}
        shapes["coef_standard_errors"] = shapes["coef"]
        for name, array in arrays.items():
            if array.shape != shapes[name] or array.dtype != np.float64:
                raise ValueError(f"{name} must be float64 of shape {shapes[name]}, got {array.dtype} of {array.shape}")
        _check_arrays(arrays)
        self.scores_ = arrays["scores"]
        self._covariance = arrays.get("covariance")
        if self._covariance is None and n <= _MOST_SAVED:
            raise ValueError(f"covariance is missing, which models of up to {_MOST_SAVED:,} items have, got {n} items")
        if "coef" in arrays:
            self.coef_, self.coef_standard_errors_ = arrays["coef"], arrays["coef_standard_errors"]
            self.coef_names_ = names
        given = arrays["ties"].tolist() if ties else []
        self.tie_parameters_ = {name: Estimate(*pair) for name, pair in zip(ties, given, strict=True)}
        if voters := field(state, "voters", list):
            self.voters_ = [Voter(name, float(many), float(how), float(gain)) for name, many, how, gain in voters]
        self._fit = None
        for name, kinds in _FACTS.items():
            setattr(self, f"{name}_", field(state, name, *kinds))
        if self.n_ballots_ <= 0:
            raise ValueError(f"n_ballots must be above 0, got {self.n_ballots_}")


def _is_reduced(source: Comparisons | None) -> bool:
    """Whether comparisons are counts, which are saved with the model."""
    return source is not None and all(
        part is None for part in (source.cluster, source.by, source.time, source.features)
    )  # fmt: skip


def _restored_source(arrays: Mapping[str, Floats], names: list[Any]) -> Comparisons:
    left, right = arrays["pairs"]
    check_names(names)
    return Comparisons(left, right, arrays["outcomes"].astype(np.int8), names, arrays["counts"])


def _check_arrays(arrays: Mapping[str, Floats]) -> None:
    """Check the arrays of a model on disk, except standard errors, which may be NaN."""
    for name in ("scores", "covariance", "coef"):
        if name in arrays:
            check_numbers(name, arrays[name])


def check_texts(name: str, values: list[Any]) -> None:
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} must be texts, got {values}")


def _check_saved(names: list[Any]) -> None:
    if not all(isinstance(name, str | int | float) for name in names):
        raise ValueError("item names must be strings or numbers to save the model")


def _check_outside(outside: dict[str, Any], dropped: list[Any]) -> None:
    names = [name for group in outside.values() if isinstance(group, list) for name in group]
    if not set(outside) <= set(REASONS) or (outside and sorted(map(str, names)) != sorted(map(str, dropped))):
        raise ValueError(f"outside must hold the dropped items by {', '.join(REASONS)}")


_OPTIONAL = ("coef_", "coef_standard_errors_", "coef_names_", "n_features_in_", "boards_", "voters_", "_source")

# What models do not have that were saved before there were models of ties.
_OLDER: dict[str, Any] = {
    "outside": {}, "covariance_kind": "model", "tie_parameters": [], "coef_names": [], "voters": [], "boards": [],
}  # fmt: skip

_FACTS: dict[str, tuple[type, ...]] = {
    "log_likelihood": (int, float),
    "null_log_likelihood": (int, float),
    "n_parameters": (int,),
    "n_ballots": (int, float),
    "ballots_hash": (str,),
    "converged": (bool,),
    "n_iter": (int,),
    "solver": (str,),
    "residual": (int, float),
}


def _check_features(X: Any, names: Sequence[Any]) -> Floats:
    """Features of items as deviations from their mean, because a constant changes nothing."""
    features = as_numbers("X", _by_name(X, names) if hasattr(X, "columns") else X)
    if features.ndim != 2 or features.shape[0] != len(names) or features.shape[1] == 0:
        raise ValueError(
            f"X must have a row of features for each of the {len(names)} items, got shape {features.shape}"
        )
    check_finite("X", features)
    return np.asarray(features - features.mean(axis=0))


def _by_name(X: Any, names: Sequence[Any]) -> Any:
    """The rows of a table in the order of the names, found by its index."""
    remedy = "or pass an array whose rows are in the order of the names"
    if not hasattr(X, "iloc"):
        raise ValueError(
            f"X must be a table with an index, got {type_and_shape(X)}: use X.to_pandas().set_index(...), {remedy}"
        )
    missing = [name for name in names if name not in X.index]
    if missing or not X.index.is_unique:
        problem = f"none for {missing[0]!r}" if missing else "a name twice"
        raise ValueError(
            f"X must have the name of each item once in its index, got {problem}: use X.set_index(...), {remedy}"
        )
    return X.loc[list(names)]
