"""Speed of NDCG@10 compared with ranx and scikit-learn, and of PSP@5 compared with napkinXC.

    python benchmarks/metrics.py

Prints tables and writes results/metrics.json. Every side gets the same data in its library's own format and must return
the same value.
"""

import math
import time
import warnings
from typing import Any

import numpy as np
from measure import report, save
from napkinxc.metrics import psprecision_at_k
from rich.console import Console
from scipy.sparse import csr_matrix
from sklearn.metrics import ndcg_score

import plackett
from plackett import metrics
from plackett.experiments.timing import interleaved

console = Console()
QUERIES, DOCUMENTS = 20_000, 120
ROWS, LABELS, PREDICTED = 100_000, 200_000, 10


def check(values: dict[str, float]) -> None:
    expected = values["plackett"]
    for name, value in values.items():
        if not math.isclose(value, expected, rel_tol=1e-9):
            raise AssertionError(f"{name} returns {value}, plackett {expected}")


def ndcg_at_10() -> dict[str, Any]:
    import ranx

    warnings.filterwarnings("ignore", message="unsafe cast from uint64 to int64")  # ranx, during compilation
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((QUERIES, DOCUMENTS))
    grades = rng.integers(0, 5, (QUERIES, DOCUMENTS)).astype(float)
    gains = 2.0**grades - 1.0
    start = time.perf_counter()
    documents = [f"d{i}" for i in range(DOCUMENTS)]
    qrels = ranx.Qrels({f"q{q}": dict(zip(documents, map(int, row), strict=True)) for q, row in enumerate(grades)})
    run = ranx.Run({f"q{q}": dict(zip(documents, map(float, row), strict=True)) for q, row in enumerate(scores)})
    building = time.perf_counter() - start
    sides = {
        "plackett": lambda: metrics.ndcg(scores, grades, k=10),
        "ranx": lambda: ranx.evaluate(qrels, run, "ndcg_burges@10"),
        "scikit-learn": lambda: ndcg_score(gains, scores, k=10),
    }
    check({name: float(side()) for name, side in sides.items()})
    seconds = interleaved(sides, 5, shortest_turn=0.5)  # as long as the slower sides need
    return {"seconds": seconds, "ranx_building": building, **_ratios(seconds)}


def psp_at_5() -> dict[str, Any]:
    """Use rows with three labels on average, some with none, and ten predicted columns each, some of them hits."""
    rng = np.random.default_rng(1)
    popularity = rng.permutation(LABELS)
    sizes = rng.poisson(3.0, ROWS)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    indices = popularity[(LABELS * rng.random(offsets[-1]) ** 3).astype(np.int64)]
    Y = csr_matrix((np.ones(len(indices)), indices, offsets), (ROWS, LABELS))
    Y.sum_duplicates()
    Y.data[:] = 1.0
    columns = rng.integers(0, LABELS // PREDICTED, (ROWS, PREDICTED)) + np.arange(PREDICTED) * (LABELS // PREDICTED)
    has_labels = np.flatnonzero(np.diff(Y.indptr))
    columns[has_labels, 0] = Y.indices[Y.indptr[has_labels]]
    scores = csr_matrix((rng.random(columns.size), columns.ravel(), np.arange(ROWS + 1) * PREDICTED), (ROWS, LABELS))
    scores.sum_duplicates()
    weights = metrics.inverse_propensity(Y)
    ranked = [scores.indices[a:b][np.argsort(-scores.data[a:b])].tolist() for a, b in _bounds(scores)]
    labels = [Y.indices[a:b].tolist() for a, b in _bounds(Y)]
    top = np.full((ROWS, 5), -1)
    for row, best in zip(top, ranked, strict=True):
        row[: len(best[:5])] = best[:5]
    sides = {
        "plackett": lambda: metrics.propensity_scored_precision(scores, Y, weights, k=5),
        "plackett, from top columns": lambda: metrics.propensity_scored_precision(top, Y, weights, k=5),
        "napkinXC": lambda: psprecision_at_k(Y, scores, weights, k=5)[4],
        "napkinXC, from ranked lists": lambda: psprecision_at_k(labels, ranked, weights, k=5)[4],
    }
    check({name: float(side()) for name, side in sides.items()})
    seconds = interleaved(sides, 3, shortest_turn=0.5)
    return {"seconds": seconds, **_ratios(seconds)}


def _bounds(matrix: csr_matrix) -> Any:
    return zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)


def _ratios(seconds: dict[str, float]) -> dict[str, dict[str, float]]:
    return {"times_plackett": {name: s / seconds["plackett"] for name, s in seconds.items()}}


def show(title: str, result: dict[str, Any]) -> None:
    rows = [[n, f"{s * 1e3:,.1f}", f"{result['times_plackett'][n]:,.1f}"] for n, s in result["seconds"].items()]
    report(title, ["", "ms", "relative to plackett"], rows, console)


def main() -> None:
    console.print(f"{plackett.get_num_threads()} threads\n")
    results: dict[str, Any] = {"threads": plackett.get_num_threads()}
    results["ndcg"] = ndcg_at_10()
    show(f"NDCG@10 of {QUERIES:,} queries with {DOCUMENTS} documents each", results["ndcg"])
    console.print(f"ranx takes another {results['ndcg']['ranx_building']:.1f} s to build its Qrels and Run\n")
    results["psp"] = psp_at_5()
    show(f"PSP@5 of {ROWS:,} rows x {LABELS:,} labels, {PREDICTED} predicted columns per row", results["psp"])
    save(results, "metrics", console)


if __name__ == "__main__":
    main()
