"""RankAggregator: worths of items from rankings."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from plackett.aggregation import inference
from plackett.aggregation.ballots import as_ballots, check_names, prepare, weighted
from plackett.aggregation.connectivity import REASONS, connectivity, describe_outside, is_separated
from plackett.aggregation.evidence import BallotsInMemory, Evidence
from plackett.aggregation.figure import worth_figure
from plackett.aggregation.model import Objective
from plackett.aggregation.solvers import SOLVERS, choose, solve
from plackett.aggregation.summary import WorthRow, WorthSummary
from plackett.arguments import as_numbers, check_kind, describe
from plackett.cluster import are_spread
from plackett.data.files import check_expansion
from plackett.data.stored import parse_arrays, regular_file
from plackett.estimators.saved import WORTHS, SavedModel, check_numbers, field
from plackett.likelihood.partition import partition_log_likelihood
from plackett.lists import check_finite, check_positive

Floats = npt.NDArray[np.float64]

_MOST_SAVED = 5000  # items: their covariance takes 200 MB
_FREE_COVARIANCE = 1 << 30  # bytes, whatever there is of ballots
_SAMPLES = {"simulation": 5000, "bootstrap": 500}
"""Methods of intervals for ranks, and how many draws they make."""


class RankAggregator(SavedModel):
    """Worths of items from rankings by the Plackett-Luce model: full, partial, in tiers, weighted.

    An item of worth v comes before one of worth u with probability v / (v + u). Items of a tier share a place and their
    order is unknown: a ranking in tiers has the sum of the probabilities of all orders that agree with it.

    Args:
        solver: "newton", "lbfgs", "mm" (Hunter 2004), or "auto": Newton unless its matrices would cost more.
        ridge: ridge / 2 times the sum of squared scores (or coefficients) is taken from the log-likelihood.
        prior: every item beats, and loses to, an item of the prior's own this many times. It makes all worths finite
            and draws them together; 0.5 is customary. 0: none.
        unranked: items that a ballot leaves out are "ignore"d, or tied "last".
        on_infinite: where the maximum likelihood estimate does not exist, the items that are to blame are left out with
            a warning ("drop"), or an "error" names them.
        tol: largest `residual_` at the maximum.
        max_iter: of the solver.

    Attributes:
        items_: the names of the items; dropped_items_: of those left out; outside_: these by how they stand to the
            others, "above" (none of these beats them), "below" (they beat none of these), "apart" or "unranked".
        scores_: log-worths, with mean zero; worths_: with sum one.
        rank_: from 1, after the items left out "above"; items whose scores differ by less than 1e-9, which is rounding,
            share the first of their places.
        covariance_, standard_errors_: of the scores (of deviations from their mean). Computed when first asked for.
        coef_, coef_standard_errors_: with item features, scores are X @ coef_.
        log_likelihood_, null_log_likelihood_ (all worths equal), aic_, bic_, n_parameters_, n_ballots_.
        ballots_hash_: what models of the same ballots share.
        converged_, n_iter_, solver_, residual_ (the largest gradient, in standard errors, or in those of ballots that
            weigh 1 if they weigh less on average).

    >>> model = RankAggregator().fit([["ale", "beer", "cider"], ["beer", {"ale", "cider"}], ["cider", "ale"]])
    >>> model.items_, model.worths_.round(3)
    (['ale', 'beer', 'cider'], array([0.219, 0.61 , 0.171]))
    >>> model.predict_proba([["beer", "ale"], ["beer", {"ale", "cider"}]]).round(3)
    array([0.736, 0.61 ])
    """

    def __init__(
        self,
        *,
        solver: str = "auto",
        ridge: float = 0.0,
        prior: float = 0.0,
        unranked: str = "ignore",
        on_infinite: str = "drop",
        tol: float = 1e-6,
        max_iter: int = 1000,
    ) -> None:
        self.solver = solver
        self.ridge = ridge
        self.prior = prior
        self.unranked = unranked
        self.on_infinite = on_infinite
        self.tol = tol
        self.max_iter = max_iter

    # Fitting

    def fit(self, ballots: Any, y: None = None, *, X: Any = None, sample_weight: Any = None) -> Self:
        """Estimate the worths.

        Args:
            ballots: `Ballots`; or a sequence of rankings, each a sequence of items, best first, in which a set, list or
                tuple is a tier (so pairs are (winner, loser)); or a 2-D array or tensor with a ranking in each row; or
                a `RankingData` whose ids are the items and whose lists are ballots (from `plackett.data.from_frame`).
                A Dask bag or array of such rankings, or a list of delayed partitions in any of these forms, stays where
                it is (docs/dask.md).
                Missing items, masked arrays, and arrays with numbers below 0 are refused: they would be padding.
            y: None; scikit-learn has it.
            X: features of the items: scores are then X @ coef_. A DataFrame of pandas whose index holds the names of
                the items, in any order; or an array, (items, features), in the order of the names.
            sample_weight: how often each ballot was cast, times its own weight.

        Ballots without two tiers, and those of weight 0, say nothing and are left out; a warning tells how many tie all
        their items. Items that no other ballot ranks are left out as well, with a warning, unless there is X.
        """
        if y is not None:
            raise ValueError("y must be None, for ballots hold their order: pass weights as sample_weight=")
        self._check_parameters(X)
        for name in ("coef_", "coef_standard_errors_", "n_features_in_"):  # of an earlier fit, with features
            if hasattr(self, name):
                delattr(self, name)
        evidence = self._read(ballots, sample_weight)
        features = None if X is None else _check_features(X, evidence.names)
        if evidence.ballots == 0:
            raise ValueError("ballots must rank at least one item above another, got none of weight above 0 that does")
        if evidence.level:
            level, cast = evidence.level, evidence.level + evidence.weight
            warnings.warn(
                f"{level:,.10g} of {cast:,.10g} ballots ({level / cast:.1%}) are ties of two items, or of all that "
                "they rank: they say nothing in this model, where a tie is an order not known, and are left out",
                stacklevel=2,
            )
        self.dropped_items_: list[Any] = []
        self.outside_: dict[str, list[Any]] = {}
        if not (self.ridge or self.prior):
            evidence = self._with_maximum(evidence, features)
        elif features is None and not (ranked := evidence.ranked).all():
            names = [name for name, known in zip(evidence.names, ranked, strict=True) if not known]
            evidence = self._without(evidence, ranked, {"unranked": names})
        if self.outside_:
            warnings.warn(f"left out are items {describe_outside(self.outside_)}", stacklevel=2)
        self.items_ = evidence.names
        n = len(self.items_)
        self.ballots_hash_ = evidence.hash()
        data = objective = evidence.objective()
        if self.prior or self.ridge or features is not None:
            objective = evidence.objective(features, self.ridge, self.prior)
        self.solver_ = choose(objective) if self.solver == "auto" else self.solver
        solution = solve(objective, self.solver_, self.tol, self.max_iter)
        self._objective: Objective | None = objective
        self._distinct_ballots = evidence.ballots
        self._parameters = solution.parameters
        scores = objective.scores(solution.parameters)[:n]
        self.scores_ = scores - scores.mean()
        if features is not None:
            self.coef_ = solution.parameters
            self.coef_standard_errors_ = np.sqrt(np.diag(objective.covariance(self.coef_)))
            self.n_features_in_ = features.shape[1]
        self.residual_, self.n_iter_, self.converged_ = solution.residual, solution.steps, solution.converged
        self.log_likelihood_ = data.log_likelihood(self.scores_)
        self.null_log_likelihood_ = data.log_likelihood(np.zeros(n))
        self.n_parameters_ = n - 1 if features is None else features.shape[1]
        self.n_ballots_ = evidence.weight
        self._covariance: Floats | None = None
        if not evidence.stays:
            if n <= _MOST_SAVED:
                self._covariance = self.covariance_
            self._objective = None
        return self

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
        check_positive("max_iter", self.max_iter)
        if self.solver == "mm" and (self.ridge or X is not None):
            raise ValueError(
                "solver 'mm' takes neither ridge nor X: choose another solver, or a prior in place of ridge"
            )
        if self.prior and X is not None:
            raise ValueError("prior must be 0 with item features X: use ridge")

    def _read(self, ballots: Any, sample_weight: Any) -> Evidence:
        if are_spread(ballots):
            from plackett.cluster.aggregation import read_partitions

            return read_partitions(ballots, sample_weight, self.unranked)
        ballots = as_ballots(ballots)
        check_names(ballots.names)
        return BallotsInMemory(weighted(ballots, sample_weight, self.unranked))

    def _with_maximum(self, evidence: Evidence, features: Floats | None) -> Evidence:
        """Ballots over items whose likelihood has a maximum."""
        steps = evidence.steps()
        found = connectivity(steps)
        if found.kept.all():
            return evidence
        if features is not None:
            if is_separated(steps, features):
                raise ValueError(
                    "the maximum likelihood estimate does not exist: some combination of the columns of X agrees with "
                    "every ballot. Use ridge above 0, or fewer features"
                )
            return evidence
        if self.on_infinite == "error" or found.kept.sum() < 2:
            raise found.error(evidence.names)
        return self._without(evidence, found.kept, found.outside(evidence.names))

    def _without(self, evidence: Evidence, kept: npt.NDArray[np.bool_], outside: dict[str, list[Any]]) -> Evidence:
        self.outside_ = outside
        self.dropped_items_ = [name for name, keep in zip(evidence.names, kept, strict=True) if not keep]
        return evidence.restrict(kept)

    @property
    def _places_above(self) -> int:
        return len(self.outside_.get("above", ()))

    # What follows from scores

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
        """(items, items). With a ridge or prior that of the posterior, by Laplace's approximation."""
        self._fitted()
        if self._covariance is None:
            if self._objective is None:
                raise ValueError(
                    f"the covariance of more than {_MOST_SAVED:,} items is not saved, nor kept on Dask: fit the model "
                    "again in memory"
                )
            self._check_covariance()
            found = self._objective.covariance(self._parameters)
            if self._objective.X is not None:
                found = self._objective.X @ found @ self._objective.X.T
            n = len(self.items_)
            found = found[:n, :n]
            found = found - found.mean(axis=0)
            self._covariance = found - found.mean(axis=1, keepdims=True)
        return self._covariance

    def _check_covariance(self) -> None:
        """Refuse matrices that take far more memory than the ballots suggest."""
        n = len(self.items_)
        needed = 24 * n * n  # the information, its factor and its inverse
        if needed > _FREE_COVARIANCE and self._objective is not None:
            rankings = self._objective.rankings
            given = rankings.items.nbytes + rankings.starts.nbytes
            check_expansion(given, needed, f"the covariance of {n:,} items", _FREE_COVARIANCE)

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
        """Of the scores: the difference of an item from the mean."""
        reach = inference.check_confidence(confidence) * self.standard_errors_
        return inference.Intervals(self.scores_ - reach, self.scores_ + reach)

    def worth_intervals(self, confidence: float = 0.95) -> inference.Intervals:
        """Of the worths, within 0 and 1."""
        return inference.worth_intervals(self._fitted(), self.covariance_, confidence)

    def rank_intervals(
        self,
        confidence: float = 0.95,
        *,
        method: str = "simulation",
        samples: int | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> inference.Intervals:
        """Of the places.

        Args:
            method: "simulation" draws scores from the normal distribution that they have in the limit of many ballots,
                if the model holds; "bootstrap" fits the model to ballots whose weights are drawn anew.
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
        """(samples, items), by the Bayesian bootstrap of Rubin (1981).

        Each cast of a ballot has an exponential weight, so w of them have a gamma one. No ballot drops out, so that
        there is a maximum whenever the data have one.
        """
        if self._objective is None:
            raise ValueError(
                "the bootstrap needs the ballots, which are not saved and stay on Dask: fit the model again in memory"
            )
        rankings = self._objective.rankings
        data = rankings.weights[: self._distinct_ballots]  # a prior's follow
        drawn = np.empty((samples, len(self.items_)))
        for scores in drawn:
            weights = rankings.weights.copy()
            weights[: len(data)] = np.maximum(generator.standard_gamma(data), 1e-9 * data)  # above 0
            objective = replace(self._objective, rankings=replace(rankings, weights=weights))
            solution = solve(objective, self.solver_, self.tol, self.max_iter)
            scores[:] = objective.scores(solution.parameters)[: len(scores)]
        return drawn

    def difference(self, first: Any, second: Any, *, confidence: float = 0.95) -> inference.Difference:
        """The score of one item less that of another, with its standard error, interval and p value."""
        i, j = (self._number(name) for name in (first, second))
        if i == j:
            raise ValueError(f"first and second must be different items, got {first!r} twice")
        return inference.difference(self.scores_, self.covariance_, i, j, confidence)

    def quasi_variances(self) -> inference.QuasiVariances:
        """One variance an item, for comparing any two: Var(score_i - score_j) is about their sum."""
        self._fitted()
        return inference.quasi_variances(self.covariance_, self.items_)

    def likelihood_ratio_test(self, restricted: RankAggregator | None = None) -> inference.LikelihoodRatio:
        """Against a model of the same ballots with fewer parameters that this one contains; None: all worths equal."""
        self._fitted()
        null, parameters = self.null_log_likelihood_, 0
        check_kind("restricted", restricted, RankAggregator, NoneType)
        if restricted is not None:
            check_is_fitted(restricted, "scores_")
            null, parameters = restricted.log_likelihood_, restricted.n_parameters_
            if restricted.ballots_hash_ != self.ballots_hash_:
                raise ValueError("restricted must be fitted to the same ballots, got a model of others")
        if self.ridge or self.prior or (restricted is not None and (restricted.ridge or restricted.prior)):
            raise ValueError("likelihood-ratio tests need maximum likelihood: ridge and prior must be 0")
        if parameters >= self.n_parameters_:
            raise ValueError(f"restricted must have fewer than {self.n_parameters_} parameters, got {parameters}")
        return inference.likelihood_ratio(null, self.log_likelihood_, self.n_parameters_ - parameters)

    # Using the model

    def predict_log_proba(self, rankings: Any, *, unranked: str = "ignore") -> Floats:
        """log of `predict_proba`."""
        scores = self._fitted()
        ballots = as_ballots(rankings, self.items_)
        if unranked not in ("ignore", "last"):
            raise ValueError(f"unranked must be one of ignore, last, got {unranked!r}")
        ballots = ballots.complete() if unranked == "last" else ballots
        prepare(ballots)  # for its checks
        return np.asarray(partition_log_likelihood(scores[ballots.items], ballots.labels, offsets=ballots.offsets))

    def predict_proba(self, rankings: Any, *, unranked: str = "ignore") -> Floats:
        """The probability of each ranking, in any form that `fit` takes.

        (a, b) is a before b; ({a, b}, {c, d}) is both of the first before both of the second; with unranked="last",
        [a] is a first of all, and [{a, b}] that they take the first two places.
        """
        return np.exp(self.predict_log_proba(rankings, unranked=unranked))

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

    def plot(self, path: Any = None, *, confidence: float = 0.95, top: int | None = 100) -> Any:
        """Worths of the best `top` items with intervals as a matplotlib Figure, saved if a path is given."""
        return worth_figure(self.summary(confidence=confidence), path, top=top)

    def _number(self, name: Any) -> int:
        self._fitted()
        try:
            return self.items_.index(name)
        except ValueError:
            raise ValueError(f"an item must be one of the model's {len(self.items_)}, got {name!r}") from None

    # On disk

    def _save_state(self, folder: Path) -> dict[str, Any]:
        _check_saved(self.items_ + self.dropped_items_)
        arrays = {"scores": self.scores_}
        if len(self.items_) <= _MOST_SAVED:
            arrays["covariance"] = self.covariance_
        if hasattr(self, "coef_"):
            arrays |= {"coef": self.coef_, "coef_standard_errors": self.coef_standard_errors_}
        _check_arrays(arrays)
        np.savez(folder / WORTHS, **arrays)
        return {
            "items": self.items_,
            "dropped_items": self.dropped_items_,
            "outside": self.outside_,
            **{name: getattr(self, f"{name}_") for name in _FACTS},
        }

    def _load_state(self, folder: Path, state: dict[str, Any]) -> None:
        with regular_file(folder / WORTHS).open("rb") as file:
            arrays = parse_arrays(file)
        self.items_, self.dropped_items_ = field(state, "items", list), field(state, "dropped_items", list)
        check_names(self.items_)
        _check_saved(self.items_ + self.dropped_items_)
        self.outside_ = field(state, "outside", dict) if "outside" in state else {}  # not in models of 0.1
        _check_outside(self.outside_, self.dropped_items_)
        n = len(self.items_)
        shapes = {"scores": (n,), "covariance": (n, n), "coef": (getattr(self, "n_features_in_", None),)}
        shapes["coef_standard_errors"] = shapes["coef"]
        for name, array in arrays.items():
            if array.shape != shapes[name] or array.dtype != np.float64:
                raise ValueError(f"{name} must be float64 of shape {shapes[name]}, got {array.dtype} of {array.shape}")
        _check_arrays(arrays)
        self.scores_ = arrays["scores"]
        self._covariance = arrays.get("covariance")
        if self._covariance is None and n <= _MOST_SAVED:
            raise ValueError(f"covariance must be there, for {n} items are at most {_MOST_SAVED:,}")
        if "coef" in arrays:
            self.coef_, self.coef_standard_errors_ = arrays["coef"], arrays["coef_standard_errors"]
        self._objective = None
        for name, kinds in _FACTS.items():
            setattr(self, f"{name}_", field(state, name, *kinds))
        if self.n_ballots_ <= 0:
            raise ValueError(f"n_ballots must be above 0, got {self.n_ballots_}")


def _check_arrays(arrays: Mapping[str, Floats]) -> None:
    """Of a model on disk. Standard errors may be unknown."""
    for name in ("scores", "covariance", "coef"):
        if name in arrays:
            check_numbers(name, arrays[name])


def _check_saved(names: list[Any]) -> None:
    if not all(isinstance(name, str | int | float) for name in names):
        raise ValueError("items must be texts or numbers in a model on disk")


def _check_outside(outside: dict[str, Any], dropped: list[Any]) -> None:
    names = [name for group in outside.values() if isinstance(group, list) for name in group]
    if not set(outside) <= set(REASONS) or (outside and sorted(map(str, names)) != sorted(map(str, dropped))):
        raise ValueError(f"outside must hold the dropped items by {', '.join(REASONS)}")


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
    """Features of items as deviations from their mean: a constant changes nothing."""
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
            f"X must be a table with an index, got {describe(X)}: use X.to_pandas().set_index(...), {remedy}"
        )
    missing = [name for name in names if name not in X.index]
    if missing or not X.index.is_unique:
        problem = f"none for {missing[0]!r}" if missing else "a name twice"
        raise ValueError(
            f"X must have the name of each item once in its index, got {problem}: use X.set_index(...), {remedy}"
        )
    return X.loc[list(names)]
