"""The boosting loop: LightGBM grows trees from our gradients, and exact Newton steps replace the values of leaves.

LightGBM's cached scores do not follow when leaf values change, so the loop keeps its own scores of the training data
and of every evaluation set. The leaf of a row is found from the change of LightGBM's cached score, which is the leaf's
old value: a thousand times faster than predicting leaves. If two leaves have the same value, they are predicted.

With checkpoints the training is divided into segments. Each starts from the text of the model so far, with its own
seeds, exactly as a resumed run does: the two cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from plackett.boosted.leaf_kernels import add_leaf_values, nearest_leaves
from plackett.boosted.lightgbm_parameters import boosting_of, has_linear_leaves, main_names
from plackett.boosted.model_text import check_model_text
from plackett.boosted.position_steps import PositionedObjective
from plackett.boosted.tree_checkpoints import CheckpointState, TreeCheckpoint
from plackett.data.listed_rows import ListedRows
from plackett.errors import DataError, MissingDependencyError
from plackett.metrics import get_metric
from plackett.objective import Floats, Leaves, Objective
from plackett.progress import progress_bar
from plackett.threads import run_over_ranges

_MOST_HALVINGS = 30
_SEEDS = ("bagging_seed", "feature_fraction_seed", "extra_seed", "objective_seed", "drop_seed")


def import_lightgbm() -> Any:
    """The package, or an error that says how to install it."""
    try:
        import lightgbm
    except ImportError:
        raise MissingDependencyError("lightgbm", "boosted", "boosted trees") from None
    return lightgbm


def read_booster(text: str, file: str) -> Any:
    """A LightGBM model from its text, which is checked first."""
    lightgbm = import_lightgbm()
    try:
        return lightgbm.Booster(model_str=check_model_text(text, file))
    except lightgbm.basic.LightGBMError as error:
        raise DataError(f"LightGBM rejects the model: {error}", file=file) from error


def first_rounds(booster: Any, rounds: int) -> Any:
    """The model of the first rounds only; the booster itself if it has no more rounds."""
    if rounds >= booster.current_iteration():
        return booster
    return import_lightgbm().Booster(model_str=booster.model_to_string(num_iteration=rounds))


class TrainingPeers:
    """What the trainer needs to know about machines that train together. Here there is only one.

    `plackett.distributed.dask_boosted` has a subclass for the workers of a cluster.
    """

    rank: int = 0

    @property
    def params(self) -> dict[str, Any]:
        """LightGBM's parameters for this machine."""
        return {}

    def total(self, values: Floats) -> Floats:
        """The sum over all machines."""
        return values

    def row_draws(self, seed: int) -> int | np.random.Generator:
        """A source of one random number per row, the same however rows are distributed over machines."""
        return seed

    def dataset_options(self, options: dict[str, Any], train: ListedRows) -> dict[str, Any]:
        """Options of LightGBM's Dataset, so that all machines bin features in the same way."""
        del train
        return options

    def connected(self) -> AbstractContextManager[Any]:
        """LightGBM's connections to the other machines."""
        return nullcontext()


@dataclass
class LoopOptions:
    """Options of the boosting loop; `params` are LightGBM's, by their main names."""

    params: dict[str, Any]
    rounds: int
    newton: bool
    metrics: Sequence[str] = ()
    stopping_rounds: int | None = None
    to_scores: Callable[[Any], Floats] = field(default=lambda predictions: predictions)
    callbacks: Sequence[Callable[..., Any]] = ()
    show_progress: bool = True
    seed: int = 0
    peers: TrainingPeers = field(default_factory=TrainingPeers)


@dataclass
class BoostedTrees:
    """The trained model and the history of its training.

    history[set][metric] holds one value per round of this training. `initial_rounds` came with the model that was
    continued; `best_round` counts them too, from 1. After early stopping the model has no rounds beyond the best.
    """

    booster: Any
    history: dict[str, dict[str, list[float]]]
    initial_rounds: int
    best_round: int | None
    bias: Floats | None = None  # of positions, after the model's last round


class _TrackedScores:
    """The scores of one set of rows: ours, and those that LightGBM caches for its Dataset of the same rows."""

    def __init__(self, rows: ListedRows, dataset: Any, start: float) -> None:
        self.rows, self.dataset = rows, dataset
        self.scores = np.full(len(rows), start)
        self.cached = np.zeros(0)

    def capture(self, booster: Any) -> Floats:
        """LightGBM's predictions at this moment."""
        held: list[Floats] = []

        def keep(predictions: Floats, _: Any) -> tuple[str, float, bool]:
            held.append(np.array(predictions, np.float64))
            return "plackett", 0.0, True

        booster.eval(self.dataset, self.rows.name, keep)
        return held[0]


def _leaf_values(booster: Any, tree: int) -> Floats:
    """The values of a tree's leaves, read from LightGBM's text."""
    text = booster.model_to_string(start_iteration=tree, num_iteration=1)
    line = next(line for line in text.splitlines() if line.startswith("leaf_value="))
    return np.array(line.removeprefix("leaf_value=").split(), np.float64)


def _find_leaves(
    tracked: _TrackedScores, after: Floats, values: Floats, booster: Any, tree: int, threads: int = 1
) -> Leaves:
    change = after - tracked.cached
    order = np.argsort(values, kind="stable").astype(np.int32)
    ordered = values[order]
    # Scores are sums of leaf values: a change is known up to the rounding of the larger of the two scores.
    rounding = 1e-14 * (1.0 + float(np.abs(after).max(initial=0.0)) + float(np.abs(values).max()))
    if len(values) > 1 and float(np.diff(ordered).min()) <= 4.0 * rounding:
        # LightGBM has one number of threads per process: predicting sets it for the training too.
        options = {"start_iteration": tree, "num_iteration": 1, "pred_leaf": True, "num_threads": threads}
        found = booster.predict(tracked.rows.X, **options)
        return np.asarray(found, np.int32).reshape(-1)
    leaf = np.empty(len(change), np.int32)
    cost = np.arange(len(change) + 1, dtype=np.int64) * 10
    run_over_ranges(lambda a, b: int(nearest_leaves(a, b, change, ordered, order, leaf)), cost)
    return leaf


def has_no_tree(booster: Any) -> bool:
    """Whether no feature could be split."""
    return booster is None or all(len(_leaf_values(booster, i)) == 1 for i in range(min(1, booster.num_trees())))


class Boosting:
    """One training. `objective` is None if LightGBM computes the gradients itself."""

    def __init__(
        self,
        train: ListedRows,
        evaluation: Sequence[ListedRows],
        objective: Objective | None,
        options: LoopOptions,
        dataset_options: dict[str, Any],
    ) -> None:
        self._lightgbm = import_lightgbm()
        self._objective, self._options = objective, options
        self._start = self._common_start(train)
        self._train = _TrackedScores(train, self._dataset(train, dataset_options), self._start)
        same_bins = {**dataset_options, "reference": self._train.dataset}
        self._evaluation = [_TrackedScores(rows, self._dataset(rows, same_bins), self._start) for rows in evaluation]
        self._history: dict[str, dict[str, list[float]]] = {
            rows.name: {metric: [] for metric in options.metrics} for rows in evaluation
        }
        self._metrics = {metric: get_metric(metric) for metric in options.metrics}
        self._best: tuple[float, int] | None = None  # the first metric of the first set, and the round of this training
        self._biases: list[list[float]] = []  # of positions, after each round
        self._keeps_best = options.stopping_rounds is not None  # or a callback stops the training
        self._params = dict(options.params)
        self._threads = int(options.params["num_threads"])

    def _common_start(self, rows: ListedRows) -> float:
        """The score that all items start with: the mean of the machines' starts, weighted by rows."""
        params = self._options.params
        # The start is added to the leaves of the first tree. Linear leaves cannot hold it, and dart would rescale it.
        if self._objective is None or boosting_of(params) == "dart" or has_linear_leaves(params):
            return 0.0
        weight = float(np.sum(np.repeat(rows.weights, rows.lists.sizes)))
        weighted, total = self._options.peers.total(np.array([self._objective.start() * weight, weight]))
        return float(weighted / total) if total > 0.0 else 0.0

    def _dataset(self, rows: ListedRows, options: dict[str, Any]) -> Any:
        sizes = rows.lists.sizes
        weights = None if (rows.weights == 1.0).all() else np.repeat(rows.weights, sizes)
        return self._lightgbm.Dataset(rows.X, rows.labels, group=sizes, weight=weights, free_raw_data=False, **options)

    def _gradients(self, predictions: Floats, _: Any) -> tuple[Floats, Floats]:
        if self._objective is None:
            raise RuntimeError("LightGBM computes the gradients itself")
        if not self._options.newton:
            self._train.scores = np.array(predictions, np.float64) + self._start
        gradient, curvature = self._objective.derivatives(self._train.scores)
        if isinstance(self._objective, PositionedObjective):
            self._objective.learn(self._train.scores, gradient, curvature)
            self._biases.append(self._objective.bias.tolist())
        return gradient, curvature

    def run(self, init_model: Any = None, checkpoint: TreeCheckpoint | None = None) -> BoostedTrees:
        options = self._options
        done, booster = 0, init_model
        initial = 0 if init_model is None else init_model.current_iteration()
        if init_model is not None:
            self._start_from(init_model)
        if checkpoint is not None and (state := checkpoint.load()) is not None:
            done, booster = state.rounds, read_booster(state.model, checkpoint.file)
            self._restore(state, checkpoint.file)
        with progress_bar("boosting", options.rounds, options.show_progress) as report:
            while done < options.rounds and not self._should_stop(done):
                segment = options.rounds if checkpoint is None else checkpoint.every
                last = min(options.rounds, (done // segment + 1) * segment)
                booster, done, ended = self._segment(booster, done, last, report)
                if checkpoint is not None:
                    scores = [tracked.scores for tracked in (self._train, *self._evaluation)]
                    model = booster.model_to_string(num_iteration=-1)
                    checkpoint.save(done, model, scores, self._history, self._best, self._biases)
                if ended:
                    break
        best = None if self._best is None else initial + self._best[1]
        bias = self._objective.bias if isinstance(self._objective, PositionedObjective) else None
        if self._keeps_best and self._best is not None and best is not None:
            booster = first_rounds(booster, best)
            bias = None if bias is None else np.array(self._biases[self._best[1] - 1])
        return BoostedTrees(booster, self._history, initial, best, bias)

    def _restore(self, state: CheckpointState, file: str) -> None:
        """Take scores and history from a checkpoint. Compiled code relies on the number of scores."""
        tracked = (self._train, *self._evaluation)
        shapes = [(one.scores.shape, one.scores.dtype) for one in tracked]
        if [(scores.shape, scores.dtype) for scores in state.scores] != shapes or [
            (name, list(metrics)) for name, metrics in state.history.items()
        ] != [(name, list(metrics)) for name, metrics in self._history.items()]:
            raise DataError("scores or history belong to different data", file=file, remedy="Delete it to start over")
        self._history, self._best, self._biases = state.history, state.best, state.biases
        if isinstance(self._objective, PositionedObjective):
            count = len(self._objective.bias)
            if len(state.biases) < state.rounds or any(len(bias) != count for bias in state.biases):
                raise DataError("biases belong to different data", file=file, remedy="Delete it to start over")
            self._objective.bias = np.array(state.biases[-1])
        for one, scores in zip(tracked, state.scores, strict=True):
            one.scores = scores

    def _start_from(self, model: Any) -> None:
        """Start from the scores of a model, which replace the objective's own start."""
        self._start = 0.0
        for tracked in (self._train, *self._evaluation):
            found = model.predict(tracked.rows.X, raw_score=True, num_threads=self._threads)
            tracked.scores = np.asarray(found, np.float64)

    def _segment(self, model: Any, first: int, last: int, report: Any) -> tuple[Any, int, bool]:
        """Train the rounds first..last, starting from a model. Returns the model, the rounds done, whether to stop."""
        # LightGBM deep-copies its parameters: a plain function is kept, but a method would copy this whole object.
        gradients = None if self._objective is None else lambda *arguments: self._gradients(*arguments)
        params = self._params | dict.fromkeys(_SEEDS, self._options.seed + first)
        if gradients is not None:
            params["objective"] = gradients

        before = [c for c in self._options.callbacks if getattr(c, "before_iteration", False)]

        def begin(env: Any) -> None:
            for tracked in (self._train, *self._evaluation):
                tracked.cached = tracked.capture(env.model)
            self._run_callbacks(before, env.model, first, [])

        begin.before_iteration = True  # type: ignore[attr-defined]
        booster = self._lightgbm.train(
            params,
            self._train.dataset,
            num_boost_round=1,
            valid_sets=[tracked.dataset for tracked in self._evaluation] or None,
            valid_names=[tracked.rows.name for tracked in self._evaluation] or None,
            init_model=model,
            callbacks=[begin],
            keep_training_booster=True,
        )
        trees = 0 if model is None else model.num_trees()
        for number in range(first, last):
            if number > first:
                self._run_callbacks(before, booster, number, [])
                booster.update(fobj=gradients)
            if booster.num_trees() == trees:
                return booster, number, True
            leaves = self._take_tree(booster, trees, is_first=trees == 0)
            if leaves == 1:
                return booster, number + 1, True
            trees = booster.num_trees()
            results = self._evaluate()
            report(number + 1, " ".join(f"{name} {metric} {value:.4f}" for name, metric, value, _ in results[:1]))
            if self._end_round(booster, number, results):
                return booster, number + 1, True
        return booster, last, False

    def _environment(self, booster: Any, number: int, results: list[Any]) -> Any:
        if hasattr(self._lightgbm, "EvalResult"):  # since 4.7; plain tuples before
            results = [self._lightgbm.EvalResult(*result) for result in results]
        return self._lightgbm.callback.CallbackEnv(booster, self._params, number, 0, self._options.rounds, results)

    def _run_callbacks(
        self, callbacks: Sequence[Callable[..., Any]], booster: Any, number: int, results: list[Any]
    ) -> None:
        for callback in callbacks:
            callback(self._environment(booster, number, results))
            self._params = main_names(self._params)  # a callback may have set parameters by any of their names

    def _end_round(self, booster: Any, number: int, results: list[Any]) -> bool:
        """Call the callbacks that follow a round. Returns whether to stop."""
        try:
            after = [c for c in self._options.callbacks if not getattr(c, "before_iteration", False)]
            self._run_callbacks(after, booster, number, results)
        except self._lightgbm.callback.EarlyStopException as stop:
            self._best, self._keeps_best = (0.0, stop.best_iteration + 1), True
            return True
        return self._should_stop(number + 1)

    def _should_stop(self, done: int) -> bool:
        rounds = self._options.stopping_rounds
        return rounds is not None and self._best is not None and done - self._best[1] >= rounds

    def _take_tree(self, booster: Any, tree: int, is_first: bool) -> int:
        """Update all scores with the new tree, after replacing its leaves with Newton steps if `newton` is set.

        Returns the number of leaves; 1 means that nothing was left to split. If LightGBM computes the
        gradients, the number is not looked up, and 2 is returned.
        """
        everything = (self._train, *self._evaluation)
        old = _leaf_values(booster, tree) if self._objective is not None else np.zeros(2)
        if not self._options.newton:
            if is_first and self._start != 0.0:
                for number, value in enumerate(old):
                    booster.set_leaf_output(tree, number, value + self._start)
            for tracked in self._evaluation:
                tracked.scores = self._options.to_scores(tracked.capture(booster)) + self._start
            return len(old)
        after = [tracked.capture(booster) for tracked in everything]
        leaves = [
            _find_leaves(t, preds, old, booster, tree, self._threads)
            for t, preds in zip(everything, after, strict=True)
        ]
        new = self._newton_steps(leaves[0], len(old))
        for number, value in enumerate(new.tolist()):
            booster.set_leaf_output(tree, number, value + (self._start if is_first else 0.0))
        for tracked, leaf, preds in zip(everything, leaves, after, strict=True):
            _add(tracked.scores, leaf, new)
            tracked.cached = preds
        return len(old)

    def _newton_steps(self, leaf: Leaves, leaves: int) -> Floats:
        if self._objective is None:
            raise RuntimeError("Newton leaves need an objective that computes its own gradients")
        local = self._objective.leaf_derivatives(self._train.scores, leaf, leaves)
        slope, curvature = self._options.peers.total(np.stack(local))
        slope = np.sign(slope) * np.maximum(np.abs(slope) - self._params.get("lambda_l1", 0.0), 0.0)  # as LightGBM does
        curvature = curvature + self._params.get("lambda_l2", 0.0)
        step = np.where(curvature > 0.0, -slope / np.where(curvature > 0.0, curvature, 1.0), 0.0)
        bound = self._params.get("max_delta_step", 0.0)
        if bound > 0.0:
            step = np.clip(step, -bound, bound)
        step = np.asarray(step * self._params["learning_rate"])
        return step if self._objective.is_convex else self._supported(step, slope, leaf)

    def _supported(self, step: Floats, slope: Floats, leaf: Leaves) -> Floats:
        """The steps clipped to a size that is halved until the loss falls by a quarter of what its slope predicts."""

        def loss(scores: Floats) -> float:
            return float(self._options.peers.total(np.array([self._objective.value(scores)]))[0])  # type: ignore[union-attr]

        before, size = loss(self._train.scores), float(np.abs(step).max(initial=0.0))
        rounding = 1e-6 * abs(before)
        for _ in range(_MOST_HALVINGS):
            cut = np.clip(step, -size, size)
            if loss(self._train.scores + cut[leaf]) <= before + 0.25 * float(slope @ cut) + rounding:
                return cut
            size /= 2.0
        return np.zeros_like(step)

    def _evaluate(self) -> list[tuple[str, str, float, bool]]:
        names, sums = [], []  # sums over lists: weight times value, and weight
        for tracked in self._evaluation:
            rows = tracked.rows
            for name, metric in self._metrics.items():
                values = metric(tracked.scores, rows.labels, offsets=rows.offsets, reduction="none")
                known = ~np.isnan(values)
                names.append((rows.name, name))
                sums.append((rows.weights[known] @ values[known], rows.weights[known].sum()))
        if not sums:
            return []
        results = []
        for (set_name, name), (sum_, weight) in zip(names, self._options.peers.total(np.array(sums)), strict=True):
            value = float(sum_ / weight) if weight > 0.0 else float("nan")
            self._history[set_name][name].append(value)
            results.append((set_name, name, value, True))
        set_name, name, value, _ = results[0]
        done = len(self._history[set_name][name])
        if math.isnan(value) and self._options.stopping_rounds is not None:
            raise ValueError(
                f"early stopping needs a number, got NaN for {name} on the evaluation set {set_name!r}: the metric is "
                "not defined for any of its lists, for example because no item is relevant"
            )
        if not math.isnan(value) and (self._best is None or value > self._best[0]):
            self._best = (value, done)
        return results


def _add(scores: Floats, leaf: Leaves, values: Floats) -> None:
    cost = np.arange(len(scores) + 1, dtype=np.int64) * 3
    run_over_ranges(lambda a, b: int(add_leaf_values(a, b, leaf, values, scores)), cost)
