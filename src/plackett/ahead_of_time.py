"""Compile all kernels ahead of time, in parallel processes: for container images and continuous integration.

A kernel is compiled for the types that it is called with, so each task below calls a family of kernels in all the ways
the package does, on a few items. Tasks share few kernels, so processes rarely compile the same one twice.
"""

import io
import itertools
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from plackett.compilation import announce_nothing, kernel_folder
from plackett.errors import PlackettError
from plackett.progress import progress_bar
from plackett.threads import get_num_threads

_LETOR = "2 qid:1 1:0.5 2:1\n1 qid:1 1:0.25\n0 qid:1 2:3\n1 qid:2 1:2\n0 qid:2 2:1\n"
_XMC = "3 4 3\n0,1 0:1 2:0.5\n2 1:1\n1 3:2\n"


def _lists() -> tuple[Any, Any, Any]:
    """Scores, labels and offsets of lists with few and with many distinct labels."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.arange(40.0) % 3, np.arange(40.0), np.zeros(4)])
    return rng.standard_normal(84), labels, np.array([0, 40, 80, 84])


def _values() -> None:
    from plackett.likelihood import partition_log_likelihood

    scores, labels, offsets = _lists()
    partition_log_likelihood(scores, labels, offsets=offsets)


def _values_with_cutoff() -> None:
    from plackett.likelihood import partition_log_likelihood

    scores, labels, offsets = _lists()
    partition_log_likelihood(scores, labels, offsets=offsets, top=5)


def _derivatives() -> None:
    from plackett.likelihood import approximate_derivatives, partition_derivatives

    scores, labels, offsets = _lists()
    partition_derivatives(scores, labels, offsets=offsets)
    approximate_derivatives(scores, labels, offsets=offsets, ties="efron")


def _derivatives_with_cutoff() -> None:
    from plackett.likelihood import partition_derivatives

    scores, labels, offsets = _lists()
    partition_derivatives(scores, labels, offsets=offsets, top=5)


def _metrics() -> None:
    from scipy.sparse import csr_array

    from plackett.metrics.registry import METRICS, MULTILABEL_METRICS

    scores, labels, offsets = _lists()
    for name, metric in METRICS.items():
        if name != "log-likelihood":  # see `_values`
            metric.function(scores, labels % 3, offsets=offsets, **metric.options)
            metric.function(scores, labels % 3, k=3, offsets=offsets) if metric.takes_k else None
    Y = csr_array(np.eye(3))
    for metric in MULTILABEL_METRICS.values():
        options = {"inverse_propensity": np.ones(3)} if metric.needs_propensity else {}
        for table in (np.eye(3), csr_array(np.eye(3))):
            metric.function(table, Y, k=1, **options)


def _trees() -> None:
    from plackett.data import make_graded_lists
    from plackett.estimators import BoostedRanker

    data = make_graded_lists(20, mean_length=10, n_features=7, random_state=0)[0]
    for objective in ("partition", "plrank"):
        model = BoostedRanker(objective=objective, n_estimators=2, random_state=0)
        model.fit(data).predict(data.X)


def _trees_with_cutoff() -> None:
    from plackett.data import make_graded_lists
    from plackett.estimators import BoostedRanker

    data = make_graded_lists(20, mean_length=10, n_features=7, random_state=0)[0]
    BoostedRanker(top=3, n_estimators=2, random_state=0).fit(data)


def _linear_models() -> None:
    from plackett.data import make_graded_lists
    from plackett.estimators import CoordinateAscentRanker, LinearRanker

    data = make_graded_lists(10, mean_length=10, n_features=7, random_state=0)[0]
    LinearRanker().fit(data)
    for objective in ("ndcg@3", "map", "err"):
        CoordinateAscentRanker(objective, n_restarts=1, max_sweeps=1, random_state=0).fit(data)


def _aggregation() -> None:
    from plackett.data import load_comparisons
    from plackett.estimators import RankAggregator

    RankAggregator().fit([["a", {"b", "c"}, "d"], ["d", "a"], [{"a", "b", "c", "d"}, "e"], ["e", "c", "a", "b"]])
    RankAggregator(ties="davidson").fit([["a", {"b", "c"}], ["c", "b", "a"], ["b", "a", "c"]])
    votes = {"left": ["a", "b", "c", "a"], "right": ["b", "c", "a", "b"], "winner": ["left", "left", "left", "tie"]}
    RankAggregator(ties="davidson").fit(load_comparisons(votes))


def _files() -> None:
    from plackett.data import load_letor, load_xmc

    load_letor(io.BytesIO(_LETOR.encode()))
    load_xmc(io.BytesIO(_XMC.encode()))


def _graphs() -> None:
    from plackett.likelihood import partial_order_derivatives, partial_order_log_likelihood
    from plackett.preferences import tiers_from_graph

    general = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]
    tree = [(0, 1), (2, 1), (2, 3)]
    tiers_from_graph(general)
    for edges, method in (
        (tree, "trees"),
        ([(0, 1), (0, 2)], "auto"),
        (general, "down-sets"),
        (general, "series-parallel"),
        (general, "sampling"),
    ):
        options: dict[str, Any] = {"samples": 10, "random_state": 0} if method == "sampling" else {}
        partial_order_log_likelihood(np.zeros(5), edges, method=method, **options)
        partial_order_derivatives(np.zeros(5), edges, method=method, **options)


def _losses() -> None:
    import torch

    from plackett.losses.registry import LOSSES, get_loss, loss_names

    scores, labels, offsets = _lists()
    for dtype in (torch.float64, torch.float32):
        tensor = torch.tensor(scores, dtype=dtype, requires_grad=True)
        for name in loss_names():
            get_loss(name)(tensor[40:80], torch.tensor(labels[40:80])).backward()
            if LOSSES[name].takes_ties:
                get_loss(name)(tensor, torch.tensor(labels), offsets=offsets).backward()


def _sparse_losses() -> None:
    import torch

    from plackett.losses.registry import LOSSES, loss_names
    from plackett.neural.gram_kernels import add_gram

    indices, offsets = torch.tensor([0, 2, 1]), torch.tensor([0, 2, 3])
    for dtype, name in itertools.product((torch.float64, torch.float32), loss_names("sparse")):
        scores = torch.zeros(2, 5, dtype=dtype, requires_grad=True)
        loss = LOSSES[name].form("sparse")
        if loss is not None:
            loss(scores, indices, offsets).backward()
    ones = np.ones(2)
    add_gram(np.array([0, 1, 2]), np.array([0, 1]), ones, ones, np.zeros((2, 2)))


TASKS: dict[str, tuple[Callable[[], None], tuple[str, ...]]] = {
    "losses": (_losses, ("torch",)),
    "derivatives with cut-off": (_derivatives_with_cutoff, ()),
    "trees with cut-off": (_trees_with_cutoff, ("lightgbm",)),
    "trees": (_trees, ("lightgbm",)),
    "metrics": (_metrics, ()),
    "values with cut-off": (_values_with_cutoff, ()),
    "graphs": (_graphs, ()),
    "linear models": (_linear_models, ()),
    "derivatives": (_derivatives, ()),
    "aggregation": (_aggregation, ()),
    "sparse losses": (_sparse_losses, ("torch",)),
    "files": (_files, ()),
    "values": (_values, ()),
}
"""What to call, and the packages it needs; the slowest first."""


def compile_kernels(*, jobs: int | None = None, progress: bool = True) -> Path:
    """Compile all kernels and keep them in the cache, so that no later call compiles anything.

    Args:
        jobs: number of processes; None: `get_num_threads()`.
        progress: whether to show a progress bar, if standard error is a terminal.

    Returns:
        The folder of the compiled kernels. Copy it together with the package, or set PLACKETT_CACHE_DIR.
    """
    folder = kernel_folder()
    names = iter([name for name, (_, packages) in TASKS.items() if all(map(find_spec, packages))])
    waiting, lock, failures = list(names), threading.Lock(), list[str]()
    with progress_bar("Compiling kernels", len(waiting), progress) as update:
        total = len(waiting)

        def work() -> None:
            for failure in _run_tasks(waiting, lock):
                with lock:
                    failures.extend(failure)
                    update(total - len(waiting))

        workers = [threading.Thread(target=work) for _ in range(min(jobs or get_num_threads(), total))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    if failures:
        raise PlackettError("\n".join(failures))
    return folder


def _run_tasks(waiting: list[str], lock: threading.Lock) -> Iterator[list[str]]:
    """Run waiting tasks one by one in a separate process; yields the failures, if any, after each task."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PLACKETT_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "plackett.ahead_of_time"]
    with subprocess.Popen(  # noqa: S603 - this interpreter, with a fixed command
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        to_worker, from_worker = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
        while True:
            with lock:
                name = waiting.pop(0) if waiting else None
            if name is None:
                return
            to_worker.write(name + "\n")
            to_worker.flush()
            answer = from_worker.readline().strip()
            if answer == "done":
                yield []
            else:
                yield [f"cannot compile the kernels of {name}: {answer or 'the process ended'}"]
                if not answer:
                    return


def _serve() -> None:
    """Run the tasks named on standard input, one per line, and answer each with a line."""
    announce_nothing()
    warnings.simplefilter("ignore")  # such as those of fits that stop early
    answers, sys.stdout = sys.stdout, sys.stderr  # tasks must not print in between
    for line in sys.stdin:
        try:
            TASKS[line.strip()][0]()
            print("done", file=answers, flush=True)
        except Exception as error:
            print(repr(error)[:500].replace("\n", " "), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
