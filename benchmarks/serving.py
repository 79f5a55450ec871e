"""Predictions of few rows, as a service makes them, against the bare booster, module or product in the same run.

For each estimator: one row, 100 rows, and 20 lists of 20 rows, one list at a time. The limit is 1.5 times the time of
the bare side plus 0.1 ms, for 100 rows.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from measure import report, save
from rich.console import Console
from scipy.sparse import csr_array

import plackett
from plackett import BoostedRanker, CoordinateAscentRanker, ExtremeClassifier, LinearRanker, NeuralRanker
from plackett.data import make_graded_lists
from plackett.experiments.timing import interleaved
from plackett.neural.onnx_export import ScaledEnsemble

FEATURES, LISTS, LENGTH, LABELS = 46, 20, 20, 1000
LARGEST_RATIO, LARGEST_EXCESS = 1.5, 1e-4
Call = Callable[[Any], Any]

console = Console()


def _bare(model: Any, score: Callable[[Any, torch.Tensor], torch.Tensor], k: int | None = None) -> Call:
    """The networks as one module, with its scaling of features; with `k`, the k best of its scores."""
    module = ScaledEnsemble(model.scaling_, model.networks_, score).eval()

    def call(X: torch.Tensor) -> Any:
        with torch.inference_mode():
            scores = module(X)
            return scores if k is None else torch.topk(scores, k)

    return call


def _tensor(X: np.ndarray) -> torch.Tensor:
    return torch.tensor(X, dtype=torch.float64)


def _estimators() -> dict[str, tuple[Call, Call, Callable[[np.ndarray], Any]]]:
    """By name: the call of the estimator, that of the bare model, and the form in which the latter takes rows."""
    data = make_graded_lists(200, mean_length=LENGTH, n_features=FEATURES, random_state=0)[0]
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((500, FEATURES)), csr_array(rng.random((500, LABELS)) < 0.005, dtype=np.float64)
    trees = BoostedRanker(n_estimators=200, random_state=0).fit(data)
    network = NeuralRanker(hidden_sizes=(64, 32), epochs=1, random_state=0).fit(data)
    linear = LinearRanker().fit(data)
    ascent = CoordinateAscentRanker(n_restarts=1, max_sweeps=1, random_state=0).fit(data)
    extreme = ExtremeClassifier(hidden_sizes=(64,), epochs=1, random_state=0).fit(X, Y)
    return {
        "BoostedRanker": (trees.predict, trees.booster_.predict, np.asarray),
        "NeuralRanker": (network.predict, _bare(network, lambda member, x: member(x, None)), _tensor),
        "LinearRanker": (linear.predict, lambda X: X @ linear.coef_, np.asarray),
        "CoordinateAscentRanker": (ascent.predict, lambda X: X @ ascent.coef_, np.asarray),
        "ExtremeClassifier (predict_top)": (
            lambda X: extreme.predict_top(X, 5),
            _bare(extreme, lambda member, x: member.scores(x), 5),
            _tensor,
        ),
    }


def _measure(call: Call, bare: Call, form: Callable[[np.ndarray], Any], rows: int, lists: int) -> dict[str, float]:
    parts = [np.random.default_rng(b).standard_normal((rows, FEATURES)) for b in range(lists)]
    bare_parts = [form(part) for part in parts]
    sides = {"plackett": lambda: [call(part) for part in parts], "bare": lambda: [bare(part) for part in bare_parts]}
    seconds = {name: value / lists for name, value in interleaved(sides, repeats=21).items()}
    return {**seconds, "ratio": seconds["plackett"] / seconds["bare"]}


def main() -> None:
    torch.set_num_threads(plackett.get_num_threads())
    console.print(f"{torch.get_num_threads()} threads\n")
    work = {"1 row": (1, 1), "100 rows": (100, 1), "one list at a time": (LENGTH, LISTS)}
    results: dict[str, Any] = {
        name: {what: _measure(*sides, *sizes) for what, sizes in work.items()} for name, sides in _estimators().items()
    }
    for what in work:
        rows = []
        for name, found in results.items():
            ours, bare = found[what]["plackett"], found[what]["bare"]
            within = ours <= LARGEST_RATIO * bare + LARGEST_EXCESS
            rows.append(
                [name, f"{ours * 1e3:.3f}", f"{bare * 1e3:.3f}", f"{ours / bare:.2f}", "yes" if within else "no"]
            )
        report(what, ["estimator", "plackett (ms)", "bare (ms)", "ratio", "within 1.5 x + 0.1 ms"], rows, console)
    save({"threads": torch.get_num_threads(), "seconds per call": results}, "serving", console)


if __name__ == "__main__":
    main()
