"""SLEEC: embed rows so that similar labels become neighbours, and let neighbours vote (Bhatia et al. 2015).

k-means clusters the rows by their features. Each cluster, n rows X (n, d) with label vectors Y of length 1, is treated
separately:

1. Embedding. Omega holds the pairs (i, j) in which one row is among the `neighbours` rows most similar to the other, by
   y_i' y_j. Z (n, r) preserves the similarities of these pairs:

       min over Z   sum over (i, j) in Omega of (y_i' y_j - z_i' z_j)^2

   Singular value projection finds M = Z Z': M <- P_r(M + P_Omega(Y Y' - M)), where P_Omega keeps the entries in Omega
   and P_r keeps the r largest positive eigenvalues. P_r gives the nearest matrix of rank r. With a step of 1, the
   quadratic being minimised lies above the error and touches it at M, so the error never rises. M is stored as Z and a
   sparse residual.

2. Regression. V (d, r) minimises |Z - X V|^2 + penalty |V|^2, by conjugate gradients. (Bhatia et al. add an L1 norm of
   X V and use ADMM, which makes embeddings sparse and prediction faster; we leave it out.)

3. Prediction. A new row x goes to the cluster with the nearest centre. The `votes` rows of the cluster whose X V make
   the smallest angle with x V vote for their labels; the score of a label is its share of these rows. (We use angles
   because label vectors have length 1, and the shrinkage of a regression says nothing about labels.)

k-means depends on its starting point, so `learners` such models are fitted from different starts and their scores
averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from plackett.arguments import check_positive
from plackett.experiments.baselines.base import (
    SCORES_HELD,
    Baseline,
    FloatArray,
    check_number,
    gram_product,
    solve_ridge,
)
from plackett.lists import IntArray
from plackett.progress import progress_bar


class SLEEC(Baseline):
    """Nearest-neighbour voting in local embeddings of the label vectors, predicted from features.

    Args:
        rank: r, the dimension of the embeddings.
        penalty: the penalty of the regression.
        learners: the number of clusterings, each with its own embeddings.
        clusters: the number of clusters in each clustering.
        neighbours: for how many most similar rows the embedding preserves the similarity.
        votes: the number of neighbours that vote.
        projections: the number of singular value projections.
        steps, tolerance: limits of the regression, see `solve_ridge`.
        normalise, bias, random_state, progress: see `Baseline`.

    Rows without labels are left out. In a cluster smaller than `rank`, `neighbours` or `votes`, the cluster size
    replaces the parameter.

    >>> from plackett.data import make_multilabel
    >>> data = make_multilabel(400, 600, 30, labels_per_row=2, features_per_row=30, signal=0.5, random_state=0)
    >>> labels, scores = SLEEC(rank=10, clusters=2, learners=2, random_state=0).fit(data).predict_top(data.X, 3)
    >>> labels.shape
    (400, 3)
    """

    learners_: list[_Learner]

    def __init__(
        self,
        rank: int = 100,
        penalty: float = 1.0,
        *,
        learners: int = 5,
        clusters: int = 4,
        neighbours: int = 50,
        votes: int = 20,
        projections: int = 10,
        steps: int = 30,
        tolerance: float = 1e-2,
        normalise: bool = True,
        bias: bool = True,
        random_state: int | np.random.Generator | None = None,
        progress: bool = True,
    ) -> None:
        self.rank = rank
        self.penalty = penalty
        self.learners = learners
        self.clusters = clusters
        self.neighbours = neighbours
        self.votes = votes
        self.projections = projections
        self.steps = steps
        self.tolerance = tolerance
        self.normalise = normalise
        self.bias = bias
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, Y: Any = None) -> Self:
        """Fit to features X and labels Y of zeros and ones, sparse or dense; or to a MultilabelData."""
        for name in ("rank", "learners", "clusters", "neighbours", "votes", "projections", "steps"):
            check_positive(name, getattr(self, name))
        for name in ("penalty", "tolerance"):
            check_number(name, getattr(self, name))
        rows, labels = self._training_data(X, Y)
        labelled = np.flatnonzero(np.diff(labels.indptr))
        rows, labels = rows[labelled], labels[labelled]
        if self.clusters > len(labelled):
            raise ValueError(f"clusters must be at most the {len(labelled)} rows with labels, got {self.clusters}")
        generator = np.random.default_rng(self.random_state)
        self.learners_ = []
        with progress_bar("SLEEC", self.learners * self.clusters, self.progress) as update:
            for learner in range(self.learners):
                seed = int(generator.integers(2**31))  # scikit-learn takes no Generator
                with threadpool_limits(1, user_api="openmp"):  # threads would add up in the order they finish
                    centres = KMeans(self.clusters, n_init=1, random_state=seed).fit(rows)
                found = {}
                for number, cluster in enumerate(np.unique(centres.labels_)):
                    members = np.flatnonzero(centres.labels_ == cluster)
                    found[int(cluster)] = self._fit_cluster(rows[members], labels[members], generator)
                    update(learner * self.clusters + number + 1, f"learner {learner + 1}")
                self.learners_.append(_Learner(centres, found))
        return self

    def _fit_cluster(self, rows: csr_array, labels: csr_array, generator: np.random.Generator) -> _Cluster:
        Z = embed(labels, self.rank, self.neighbours, self.projections, generator)[0]
        V = solve_ridge(gram_product(rows), rows.T @ Z, float(self.penalty), steps=self.steps, tolerance=self.tolerance)
        # Among vectors of length 1, the nearest have the smallest angle.
        nearest = NearestNeighbors(n_neighbors=min(self.votes, rows.shape[0]), algorithm="brute")
        return _Cluster(V, nearest.fit(normalize(rows @ V)), labels)

    def _scores(self, rows: csr_array) -> FloatArray:
        scores = np.zeros((rows.shape[0], self.n_labels_), rows.dtype)
        for learner in self.learners_:
            assigned = learner.centres.predict(rows)
            for number, cluster in learner.clusters.items():
                own = np.flatnonzero(assigned == number)
                if len(own):
                    scores[own] += cluster.votes(rows[own])
        scores /= len(self.learners_)
        return scores


@dataclass(frozen=True)
class _Cluster:
    V: FloatArray
    nearest: Any
    labels: csr_array

    def votes(self, rows: csr_array) -> FloatArray:
        """Return the share of the nearest rows that have each label, (rows, labels)."""
        voters: IntArray = self.nearest.kneighbors(normalize(rows @ self.V), return_distance=False)
        count = voters.shape[1]
        ballot = csr_array(
            (np.full(voters.size, 1.0 / count, rows.dtype), voters.reshape(-1), np.arange(len(voters) + 1) * count),
            shape=(len(voters), self.labels.shape[0]),
        )
        shares: FloatArray = (ballot @ self.labels).toarray()
        return shares


@dataclass(frozen=True)
class _Learner:
    centres: Any
    clusters: dict[int, _Cluster]


def embed(
    labels: csr_array, rank: int, neighbours: int, projections: int, generator: np.random.Generator
) -> tuple[FloatArray, list[float]]:
    """Return embeddings Z of rows by their labels, and the relative squared error after each projection."""
    unit = csr_array(normalize(labels))
    pairs = _similar_pairs(unit, neighbours)
    target = _products_of_pairs(unit, pairs)
    n = unit.shape[0]
    rank = min(rank, n)
    Z = np.zeros((n, rank), unit.dtype)
    begin = generator.standard_normal(n).astype(unit.dtype)
    residual, errors = target, []
    for _ in range(projections):
        Z = _project(Z, csr_array((residual, pairs.indices, pairs.indptr), shape=(n, n)), rank, begin)
        residual = target - _products_of_pairs(Z, pairs)
        errors.append(float(np.sum(residual**2, dtype=float) / np.sum(target**2, dtype=float)))
    return Z, errors


def _similar_pairs(unit: csr_array, neighbours: int) -> csr_array:
    """Return Omega, (rows, rows): each row paired, both ways, with its most similar rows, itself included."""
    nearest = NearestNeighbors(n_neighbors=min(neighbours, unit.shape[0]), metric="cosine").fit(unit)
    graph = csr_array(nearest.kneighbors_graph(unit))
    found = csr_array(graph + graph.T)
    found.sort_indices()
    return found


def _products_of_pairs(rows: Any, pairs: csr_array) -> FloatArray:
    """Return the inner product of each pair of rows, computed for a block of rows at a time."""
    n = rows.shape[0]
    found = np.empty(pairs.nnz, rows.dtype)
    size = max(1, SCORES_HELD // n)
    for first in range(0, n, size):
        block = rows[first : first + size] @ rows.T
        block = block if isinstance(block, np.ndarray) else block.toarray()
        offsets = pairs.indptr[first : first + size + 1]
        row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        part = slice(offsets[0], offsets[-1])
        found[part] = block[row, pairs.indices[part]]
    return found


def _project(Z: FloatArray, residual: csr_array, rank: int, begin: FloatArray) -> FloatArray:
    """Return the new Z: the positive semidefinite matrix of rank `rank` nearest to Z Z' + residual, factored."""
    n = len(Z)
    if n <= 3 * rank:  # an iterative method does not pay for so many of the eigenvalues
        eigenvalues, vectors = eigh(Z @ Z.T + residual.toarray(), subset_by_index=[n - rank, n - 1])
    else:
        total = LinearOperator((n, n), lambda v: Z @ (Z.T @ v) + residual @ v, dtype=Z.dtype)
        eigenvalues, vectors = eigsh(total, rank, which="LA", v0=begin)
    found: FloatArray = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    return found
