"""RankAggregator: worths of items from rankings."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from plackett.aggregation.covariances import COVARIANCES
from plackett.aggregation.evidence import Evidence
from plackett.aggregation.fitting import WarmStart, WorthFit, WorthSettings, fit_worths
from plackett.aggregation.groups import deviation_variance
from plackett.aggregation.item_features import check_item_features
from plackett.aggregation.leaderboard import MOST_SAVED, Leaderboard
from plackett.aggregation.reading import Reading, prepare_comparisons, read_evidence
from plackett.aggregation.saved_boards import describe_model, restore_model
from plackett.aggregation.solvers import SOLVERS
from plackett.aggregation.tie_models import TIE_MODELS, UNKNOWN, question_of_ballots
from plackett.aggregation.voters import fit_voters
from plackett.arguments import (
    Check,
    check_above_zero,
    check_choice,
    check_count,
    check_parameters,
    check_positive,
    check_range,
    check_seed,
    or_none,
    type_and_shape,
)
from plackett.data.comparisons import Comparisons, concatenate_comparisons, reduced, used_items
from plackett.data.untrusted import parse_arrays, regular_file
from plackett.distributed import are_dask
from plackett.estimators.persistence import WORTHS, SavedModel
from plackett.estimators.plain_estimator import PlainEstimator

Floats = npt.NDArray[np.float64]

_OPTIONAL = ("coef_", "coef_standard_errors_", "coef_names_", "n_features_in_", "boards_", "voters_", "_source")
"""Attributes that only some fits have."""


class RankAggregator(Leaderboard, SavedModel, PlainEstimator):
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
        groups: "separate" fits the board of each category by itself; "shared" shrinks them towards the board of all.
        half_life, window: the age at which a comparison counts half, and the age beyond which it is ignored.
        feature_ridge: ridge of the coefficients of comparisons' features.
        bootstrap_samples, random_state: rounds and seed of the bootstrap.
        solver: "newton", "lbfgs", "mm" (Hunter 2004), "em" (for graphs), or "auto": Newton unless its matrices would
            cost more, and "em" for graphs.
        ridge: ridge / 2 times the sum of squared scores (or coefficients) is subtracted from the log-likelihood.
        prior: every item beats, and loses to, an artificial item this many times. This makes all worths finite and
            shrinks their differences; 0.5 is customary. 0: no prior.
        unranked: "ignore" the items that a ballot leaves out, or tie them "last".
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
        "half_life": or_none(check_above_zero),
        "window": or_none(check_above_zero),
        "feature_ridge": partial(check_range, least=0.0),
        "random_state": check_seed,
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
            X: features of the items: scores are then X @ coef_. A pandas DataFrame whose index holds the names of
                the items, in any order; or an array, (items, features), in the order of the names.
            features: features of the comparisons: names among those of `Comparisons`, or an array or table with the
                features of the left side minus those of the right side, one row per comparison. Default: all that the
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
        if not isinstance(ballots, Comparisons):
            if features is not None:
                raise ValueError("features belong to comparisons: pass Comparisons, or item features as X=")
            self._fit_data(ballots, X, sample_weight, cluster)
            return self
        data = reduced(prepare_comparisons(ballots, features, sample_weight, cluster))
        self._fit_data(data, X)
        self._source = data if X is None else None
        if data.by is not None:
            self._fit_groups(data)
        return self

    def _fit_data(
        self,
        ballots: Any,
        X: Any = None,
        sample_weight: Any = None,
        cluster: Any = None,
        centre: Any = None,
    ) -> None:
        """Fit one board."""
        start = self._warm()
        for name in _OPTIONAL:
            if hasattr(self, name):
                delattr(self, name)
        if self.voters is not None and X is not None:
            raise ValueError("voters='reliability' takes no X: leave out one of them")
        evidence = self._read(ballots, sample_weight, cluster)
        X_names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
        X = None if X is None else check_item_features(X, evidence.names)
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

    def _warm(self) -> WarmStart | None:
        """Where `partial_fit` starts."""
        fit = getattr(self, "_fit", None)
        if fit is None or fit.data.X is not None or not getattr(self, "_starts_warm", False):
            return None
        return WarmStart(dict(zip(self.items_, self.scores_, strict=True)), fit.parameters[fit.data.head :])

    def _fit_groups(self, data: Comparisons) -> None:
        """One board per category; shared ones are shrunk towards the board of all by the variance between them."""
        parts = data.categories()
        self.boards_: dict[Any, RankAggregator] = {
            name: self._fit_part(name, part, self.get_params()) for name, part in parts.items()
        }
        if self.groups == "shared" and len(self.boards_) > 1:
            boards = {name: board._board() for name, board in self.boards_.items()}
            options = self.get_params() | {"ridge": 1.0 / deviation_variance(boards, self._board())}
            centre = dict(zip(self.items_, self.scores_, strict=True))
            known = [name in centre for name in data.names]
            for name, part in parts.items():
                rows = np.array(known)[part.left] & np.array(known)[part.right]
                self.boards_[name] = self._fit_part(name, part.select(rows), options, centre)

    def _fit_part(self, name: Any, part: Comparisons, options: dict[str, Any], centre: Any = None) -> RankAggregator:
        board = RankAggregator(**options | {"voters": None})
        try:
            if board.covariance is None and part.cluster is not None and len(part.cluster.used().names) < 2:
                board.covariance = "sandwich"
            board._fit_data(used_items(part), centre=centre)
        except ValueError as error:
            raise ValueError(f"category {name!r} cannot be fitted: {error}. Leave it out, or set a prior") from error
        return board

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

    def _settings(self) -> WorthSettings:
        return WorthSettings(**{field.name: getattr(self, field.name) for field in fields(WorthSettings)})

    def _check_evidence(self, evidence: Evidence) -> None:
        if evidence.ballots == 0:
            raise ValueError(
                "ballots must rank at least one item above another, got none with a weight above 0 that does"
            )
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
            if len(self.items_) <= MOST_SAVED:
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
        check_parameters(self)
        check_positive("max_iter", self.max_iter)
        if self.solver == "mm" and (self.ridge or X is not None or self.ties not in (None, UNKNOWN)):
            raise ValueError(
                "solver 'mm' takes neither ridge nor X nor tie parameters: choose another solver, or a prior in place "
                "of ridge"
            )
        if self.prior and X is not None:
            raise ValueError("prior must be 0 with item features X: use ridge")

    def _read(self, ballots: Any, sample_weight: Any, cluster: Any) -> Evidence:
        if are_dask(ballots):
            return self._read_dask(ballots, sample_weight, cluster)
        reading = Reading(
            self.ties, self.max_tie, self.unranked, self.half_life, self.window, random_state=self.random_state
        )
        return read_evidence(ballots, reading, sample_weight, cluster)

    def _read_dask(self, ballots: Any, sample_weight: Any, cluster: Any) -> Evidence:
        from plackett.distributed.dask_aggregation import read_partitions

        if self.ties not in (None, UNKNOWN) or cluster is not None:
            raise ValueError("ballots on Dask need ties='unknown' and no cluster: otherwise fit in memory")
        evidence = read_partitions(ballots, sample_weight, self.unranked)
        if self.ties is None and evidence.tied_pairs:
            raise ValueError(question_of_ballots(evidence.tied_pairs, evidence.tied_weight + evidence.weight))
        return evidence

    # On disk

    def _save_state(self, folder: Path) -> dict[str, Any]:
        arrays, state = describe_model(self)
        np.savez(folder / WORTHS, **arrays)
        return state

    def _load_state(self, folder: Path, state: dict[str, Any]) -> None:
        check_choice("ties", self.ties, choices=(None, *TIE_MODELS))
        with regular_file(folder / WORTHS).open("rb") as file:
            arrays = parse_arrays(file)
        boards = {}
        for name, part, described in restore_model(self, arrays, state):
            boards[name] = RankAggregator(**self.get_params())
            restore_model(boards[name], part, described)
        if boards:
            self.boards_ = boards
