"""The boosting loop: LightGBM grows each tree, we give it gradients and, where wanted, put exact Newton steps into its
leaves.

LightGBM's cached scores do not notice new leaf values, so scores of our own are kept for the training data and every
evaluation set. The leaf of a row is read off from the change of LightGBM's cached score, which is the leaf's old value:
that takes a thousandth of the time of predicting leaves. Should two leaves have the same value, they are predicted.

With checkpoints the training is cut into segments. Each begins from the text of the model so far with seeds of its own,
which is what a resumed run does too: the two cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.boosted.base import Floats, Objective
from plackett.boosted.checkpoints import Checkpoint, State
from plackett.boosted.kernels import add_leaf_values, nearest_leaves
from plackett.boosted.model_text import check_model_text
from plackett.boosted.parameters import boosting_of, has_linear_leaves, main_names
from plackett.errors import DataError, MissingDependencyError
from plackett.lists import IntArray
from plackett.metrics import get_metric
from plackett.progress import progress_bar
from plackett.threads import run_over_ranges

_MOST_HALVINGS = 30
_SEEDS = ("bagging_seed", "feature_fraction_seed", "extra_seed", "objective_seed", "drop_seed")


def import_lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise MissingDependencyError("lightgbm", "boosted", "boosted trees") from None
    return lightgbm


def read_booster(text: str, file: str) -> Any:
    """LightGBM's model from its text, which is checked first."""
    lightgbm = import_lightgbm()
    try:
        return lightgbm.Booster(model_str=check_model_text(text, file))
    except lightgbm.basic.LightGBMError as error:
        raise DataError(f"LightGBM refuses the model: {error}", file=file) from error


def first_rounds(booster: Any, rounds: int) -> Any:
    """The model of the first rounds alone; the booster itself if it has no others."""
    if rounds >= booster.current_iteration():
        return booster
    return import_lightgbm().Booster(model_str=booster.model_to_string(num_iteration=rounds))


@dataclass
class LabelledRows:
    """Rows of lists one after the other, with labels; `weights` one per list."""

    X: Any
    labels: Floats
    offsets: IntArray
    weights: Floats
    name: str = "train"


class Machine:
    """What a machine has to know of others that train with it. Here there are none; `plackett.cluster` has some."""

    rank: int = 0

    @property
    def params(self) -> dict[str, Any]:
        """Parameters of LightGBM that are its own."""
        return {}

    def total(self, values: Floats) -> Floats:
        """The sum over all machines."""
        return values

    def row_draws(self, seed: int) -> int | np.random.Generator:
        """A source of numbers, one for each row, that are the same however rows are spread over machines."""
        return seed

    def dataset_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Options of LightGBM's data set, with what makes all machines bin features alike."""
        return options

    def connected(self) -> AbstractContextManager[Any]:
        """LightGBM's links to the other machines."""
        return nullcontext()


@dataclass
class Settings:
    """How to train; `params` are LightGBM's, with their main names."""

    params: dict[str, Any]
    rounds: int
    newton: bool
    metrics: Sequence[str] = ()
    stopping_rounds: int | None = None
    to_scores: Callable[[Any], Floats] = field(default=lambda preds: preds)
    callbacks: Sequence[Callable[..., Any]] = ()
    show_progress: bool = True
    seed: int = 0
    machine: Machine = field(default_factory=Machine)


@dataclass
class Trained:
    """The model and how it went.

    history[set][metric] holds one value per round of this training. `initial_rounds` came with the model that was
    continued; `best_round` counts them too, from 1. After early stopping the model has no rounds beyond the best.
    """

    booster: Any
    history: dict[str, dict[str, list[float]]]
    initial_rounds: int
    best_round: int | None


class _Tracked:
    """Scores of one set of rows, ours and what LightGBM has cached."""

    def __init__(self, rows: LabelledRows, dataset: Any, start: float) -> None:
        self.rows, self.dataset = rows, dataset
        self.scores = np.full(len(rows.labels), start)
        self.cached = np.zeros(0)

    def capture(self, booster: Any) -> Floats:
        """What LightGBM has as predictions at this moment."""
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
    tracked: _Tracked, after: Floats, values: Floats, booster: Any, tree: int, threads: int = 1
) -> npt.NDArray[np.int32]:
    change = after - tracked.cached
    order = np.argsort(values, kind="stable").astype(np.int32)
    ordered = values[order]
    # Scores are sums of leaf values: a change is known to the rounding of the larger of the two scores.
    rounding = 1e-14 * (1.0 + float(np.abs(after).max(initial=0.0)) + float(np.abs(values).max()))
    if len(values) > 1 and float(np.diff(ordered).min()) <= 4.0 * rounding:
        # LightGBM's number of threads is the process's: whoever predicts sets it for the training too.
        options = {"start_iteration": tree, "num_iteration": 1, "pred_leaf": True, "num_threads": threads}
        found = booster.predict(tracked.rows.X, **options)
        return np.asarray(found, np.int32).reshape(-1)
    leaf = np.empty(len(change), np.int32)
    cost = np.arange(len(change) + 1, dtype=np.int64) * 10
    run_over_ranges(lambda a, b: int(nearest_leaves(a, b, change, ordered, order, leaf)), cost)
    return leaf


def has_no_tree(booster: Any) -> bool:
    """Whether nothing could be split."""
    return booster is None or all(len(_leaf_values(booster, i)) == 1 for i in range(min(1, booster.num_trees())))


class Boosting:
    """One training. `objective` is None where LightGBM computes the gradients itself."""

    def __init__(
        self,
        train: LabelledRows,
        evaluation: Sequence[LabelledRows],
        objective: Objective | None,
        settings: Settings,
        dataset_options: dict[str, Any],
    ) -> None:
        self._lightgbm = import_lightgbm()
        self._objective, self._settings = objective, settings
        self._start = self._common_start()
        self._train = _Tracked(train, self._dataset(train, dataset_options), self._start)
        options = {**dataset_options, "reference": self._train.dataset}
        self._evaluation = [_Tracked(rows, self._dataset(rows, options), self._start) for rows in evaluation]
        self._history: dict[str, dict[str, list[float]]] = {
            rows.name: {metric: [] for metric in settings.metrics} for rows in evaluation
        }
        self._metrics = {metric: get_metric(metric) for metric in settings.metrics}
        self._best: tuple[float, int] | None = None  # the first metric of the first set, and the round of this training
        self._keeps_best = settings.stopping_rounds is not None  # or a callback stops the training
        self._params = dict(settings.params)
        self._threads = int(settings.params["num_threads"])

    def _common_start(self) -> float:
        """The score that all items begin with: starts are weighted means over rows."""
        params = self._settings.params
        # The start goes into the leaves of the first tree. Linear leaves cannot hold it, and dart would rescale it.
        if self._objective is None or boosting_of(params) == "dart" or has_linear_leaves(params):
            return 0.0
        weight = float(np.sum(self._objective.row_weights))
        weighted, total = self._settings.machine.total(np.array([self._objective.start() * weight, weight]))
        return float(weighted / total) if total > 0.0 else 0.0

    def _dataset(self, rows: LabelledRows, options: dict[str, Any]) -> Any:
        sizes = np.diff(rows.offsets)
        weights = None if (rows.weights == 1.0).all() else np.repeat(rows.weights, sizes)
        return self._lightgbm.Dataset(rows.X, rows.labels, group=sizes, weight=weights, free_raw_data=False, **options)

    def _gradients(self, predictions: Floats, _: Any) -> tuple[Floats, Floats]:
        if self._objective is None:
            raise RuntimeError("LightGBM computes the gradients itself")
        if not self._settings.newton:
            self._train.scores = np.array(predictions, np.float64) + self._start
        return self._objective.derivatives(self._train.scores)

    def run(self, init_model: Any = None, checkpoint: Checkpoint | None = None) -> Trained:
        settings = self._settings
        done, booster = 0, init_model
        initial = 0 if init_model is None else init_model.current_iteration()
        if init_model is not None:
            self._begin_from(init_model)
        if checkpoint is not None and (state := checkpoint.load()) is not None:
            done, booster = state.rounds, read_booster(state.model, checkpoint.file)
            self._restore(state, checkpoint.file)
        with progress_bar("boosting", settings.rounds, settings.show_progress) as tell:
            while done < settings.rounds and not self._should_stop(done):
                segment = settings.rounds if checkpoint is None else checkpoint.every
                last = min(settings.rounds, (done // segment + 1) * segment)
                booster, done, ended = self._segment(booster, done, last, tell)
                if checkpoint is not None:
                    scores = [tracked.scores for tracked in (self._train, *self._evaluation)]
                    checkpoint.save(done, booster.model_to_string(num_iteration=-1), scores, self._history, self._best)
                if ended:
                    break
        best = None if self._best is None else initial + self._best[1]
        if self._keeps_best and best is not None:
            booster = first_rounds(booster, best)
        return Trained(booster, self._history, initial, best)

    def _restore(self, state: State, file: str) -> None:
        """Scores and history of a checkpoint. Compiled code relies on the number of scores."""
        tracked = (self._train, *self._evaluation)
        shapes = [(one.scores.shape, one.scores.dtype) for one in tracked]
        if [(scores.shape, scores.dtype) for scores in state.scores] != shapes or [
            (name, list(metrics)) for name, metrics in state.history.items()
        ] != [(name, list(metrics)) for name, metrics in self._history.items()]:
            raise DataError("scores or a history of other data", file=file, remedy="Delete it to begin anew")
        self._history, self._best = state.history, state.best
        for one, scores in zip(tracked, state.scores, strict=True):
            one.scores = scores

    def _begin_from(self, model: Any) -> None:
        """Scores of a model to continue from. It takes the place of the objective's own start."""
        self._start = 0.0
        for tracked in (self._train, *self._evaluation):
            found = model.predict(tracked.rows.X, raw_score=True, num_threads=self._threads)
            tracked.scores = np.asarray(found, np.float64)

    def _segment(self, model: Any, first: int, last: int, tell: Any) -> tuple[Any, int, bool]:
        """Rounds first..last, from the text of a model. Returns the model, the rounds done, and whether to end."""
        # LightGBM copies its parameters deeply: a plain function stays what it is, a method would copy all of this.
        gradients = None if self._objective is None else lambda *arguments: self._gradients(*arguments)
        params = self._params | dict.fromkeys(_SEEDS, self._settings.seed + first)
        if gradients is not None:
            params["objective"] = gradients

        before = [c for c in self._settings.callbacks if getattr(c, "before_iteration", False)]

        def begin(env: Any) -> None:
            for tracked in (self._train, *self._evaluation):
                tracked.cached = tracked.capture(env.model)
            self._tell(before, env.model, first, [])

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
                self._tell(before, booster, number, [])
                booster.update(fobj=gradients)
            if booster.num_trees() == trees:
                return booster, number, True
            leaves = self._take_tree(booster, trees, is_first=trees == 0)
            if leaves == 1:
                return booster, number + 1, True
            trees = booster.num_trees()
            results = self._evaluate()
            tell(number + 1, " ".join(f"{name} {metric} {value:.4f}" for name, metric, value, _ in results[:1]))
            if self._after(booster, number, results):
                return booster, number + 1, True
        return booster, last, False

    def _environment(self, booster: Any, number: int, results: list[Any]) -> Any:
        if hasattr(self._lightgbm, "EvalResult"):  # since 4.7; plain tuples before
            results = [self._lightgbm.EvalResult(*result) for result in results]
        return self._lightgbm.callback.CallbackEnv(booster, self._params, number, 0, self._settings.rounds, results)

    def _tell(self, callbacks: Sequence[Callable[..., Any]], booster: Any, number: int, results: list[Any]) -> None:
        for callback in callbacks:
            callback(self._environment(booster, number, results))
            self._params = main_names(self._params)  # it may have set parameters, by any of their names

    def _after(self, booster: Any, number: int, results: list[Any]) -> bool:
        """Tell callbacks; whether to stop."""
        try:
            after = [c for c in self._settings.callbacks if not getattr(c, "before_iteration", False)]
            self._tell(after, booster, number, results)
        except self._lightgbm.callback.EarlyStopException as stop:
            self._best, self._keeps_best = (0.0, stop.best_iteration + 1), True
            return True
        return self._should_stop(number + 1)

    def _should_stop(self, done: int) -> bool:
        rounds = self._settings.stopping_rounds
        return rounds is not None and self._best is not None and done - self._best[1] >= rounds

    def _take_tree(self, booster: Any, tree: int, is_first: bool) -> int:
        """Bring all scores up to date with the new tree, its leaves replaced by Newton steps if wanted.

        Returns how many leaves it has, in so far as we need to know: a single one means that nothing was left to split.
        """
        everything = (self._train, *self._evaluation)
        old = _leaf_values(booster, tree) if self._objective is not None else np.zeros(2)
        if not self._settings.newton:
            if is_first and self._start != 0.0:
                for number, value in enumerate(old):
                    booster.set_leaf_output(tree, number, value + self._start)
            for tracked in self._evaluation:
                tracked.scores = self._settings.to_scores(tracked.capture(booster)) + self._start
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

    def _newton_steps(self, leaf: npt.NDArray[np.int32], leaves: int) -> Floats:
        if self._objective is None:
            raise RuntimeError("Newton leaves need an objective of our own")
        local = self._objective.leaf_derivatives(self._train.scores, leaf, leaves)
        slope, bend = self._settings.machine.total(np.stack(local))
        slope = np.sign(slope) * np.maximum(np.abs(slope) - self._params.get("lambda_l1", 0.0), 0.0)  # as LightGBM does
        curvature = bend + self._params.get("lambda_l2", 0.0)
        step = np.where(curvature > 0.0, -slope / np.where(curvature > 0.0, curvature, 1.0), 0.0)
        bound = self._params.get("max_delta_step", 0.0)
        if bound > 0.0:
            step = np.clip(step, -bound, bound)
        step = np.asarray(step * self._params["learning_rate"])
        return step if self._objective.is_convex else self._supported(step, slope, leaf)

    def _supported(self, step: Floats, slope: Floats, leaf: npt.NDArray[np.int32]) -> Floats:
        """The steps cut to a size, halved until the loss falls by a quarter of what its slope promises."""

        def loss(scores: Floats) -> float:
            return float(self._settings.machine.total(np.array([self._objective.value(scores)]))[0])  # type: ignore[union-attr]

        before, size = loss(self._train.scores), float(np.abs(step).max(initial=0.0))
        rounding = 1e-6 * abs(before)
        for _ in range(_MOST_HALVINGS):
            cut = np.clip(step, -size, size)
            if loss(self._train.scores + cut[leaf]) <= before + 0.25 * float(slope @ cut) + rounding:
                return cut
            size /= 2.0
        return np.zeros_like(step)

    def _evaluate(self) -> list[tuple[str, str, float, bool]]:
        names, sums = [], []  # sums over lists: of weight times value, and of the weight
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
        for (set_name, name), (sum_, weight) in zip(names, self._settings.machine.total(np.array(sums)), strict=True):
            value = float(sum_ / weight) if weight > 0.0 else float("nan")
            self._history[set_name][name].append(value)
            results.append((set_name, name, value, True))
        set_name, name, value, _ = results[0]
        done = len(self._history[set_name][name])
        if math.isnan(value) and self._settings.stopping_rounds is not None:
            raise ValueError(
                f"early stopping needs a number, got NaN as {name} of the evaluation set {set_name!r}: the metric is "
                "defined for none of its lists, such as where no item is relevant"
            )
        if not math.isnan(value) and (self._best is None or value > self._best[0]):
            self._best = (value, done)
        return results


def _add(scores: Floats, leaf: npt.NDArray[np.int32], values: Floats) -> None:
    cost = np.arange(len(scores) + 1, dtype=np.int64) * 3
    run_over_ranges(lambda a, b: int(add_leaf_values(a, b, leaf, values, scores)), cost)
