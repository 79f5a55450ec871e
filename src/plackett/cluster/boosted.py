"""BoostedRanker on Dask: every worker trains on lists of its own, and LightGBM's data-parallel learner makes them one.

The trees are those of one machine. LightGBM adds up histograms over workers; what else is a sum over lists, the
derivatives along leaves (Newton steps) and the metrics, is added up in a `Meeting`. Bins are found by all workers from
the same sample of rows, which is all rows if they are not more than bin_construct_sample_cnt.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from plackett.boosted.parameters import main_names
from plackett.boosted.threads import threads_to_fit
from plackett.boosted.training import LabelledRows, Machine, import_lightgbm
from plackett.cluster.lists import Block, Layout, aligned_blocks, is_spread, join_rows, make_layout, whole_lists
from plackett.cluster.workers import Member, addresses, all_present, hold, import_distributed, open_client, run_together
from plackett.lists import IntArray

_SAMPLED_ROWS = 200_000  # LightGBM's default of bin_construct_sample_cnt
_MINUTES_TO_CONNECT = 120  # LightGBM's default of time_out


@dataclass(frozen=True)
class _Share:
    """All rows as one worker sees them: where its own begin, how many there are, which of its own bins come from."""

    first: int
    rows: int
    sampled: IntArray | None


def fit_on_workers(
    ranker: Any, client: Any, data: dict[str, Any], evaluation: Sequence[tuple[str, dict[str, Any]]], init_model: Any
) -> dict[str, Any]:
    """The attributes of a BoostedRanker that is fitted on the workers of a cluster."""
    with open_client(client) as opened:
        workers = addresses(opened)
        if not workers:
            raise ValueError("client must have workers, got a cluster without any")
        with all_present(opened, workers):
            return _fit(opened, workers, clone(ranker), data, evaluation, init_model)


def _fit(
    client: Any,
    workers: Sequence[str],
    model: Any,
    data: dict[str, Any],
    evaluation: Sequence[tuple[str, dict[str, Any]]],
    init_model: Any,
) -> dict[str, Any]:
    layout, cuts, parts = _spread(client, workers, model, data)
    if layout.rows < 2:
        raise ValueError(f"X must hold at least two rows, got {layout.rows}: 1 sample cannot be ranked")
    evaluated = [(name, _spread(client, workers[: len(parts)], model, rows)[2]) for name, rows in evaluation]
    workers, sampled = workers[: len(parts)], _sampled(layout, cuts, model)
    evaluation_parts = [
        [(name, found[rank] if rank < len(found) else None) for name, found in evaluated] for rank in range(len(parts))
    ]
    held = hold(client, workers, list(zip(parts, evaluation_parts, strict=True)))
    del parts, evaluated, evaluation_parts  # of the memory of the workers
    arguments = [
        (model, rows, _Share(int(cuts[rank]), layout.rows, sampled[rank] if sampled else None), init_model)
        for rank, rows in enumerate(held)
    ]
    return dict(run_together(client, workers, _train, arguments, cut_links)[0])


def _spread(
    client: Any, workers: Sequence[str], model: Any, data: dict[str, Any]
) -> tuple[Layout, IntArray, list[Any]]:
    """Rows in parts of whole lists, about equally large, one a worker: how lists lie, the cuts, and the parts."""
    if not is_spread(data["X"]):
        rows = model._rows(**data, reset=not hasattr(model, "n_features_in_"))
        layout = Layout(np.array([0, len(rows.labels)]), np.unique(rows.offsets))
        cuts = layout.cut(len(workers))
        weights = np.repeat(rows.weights, rows.lists.sizes)
        parts = []
        for a, b, worker in zip(cuts[:-1], cuts[1:], workers, strict=False):
            part = {"X": rows.X[a:b], "y": rows.labels[a:b], "sample_weight": weights[a:b], "group": layout.sizes(a, b)}
            parts += client.scatter([part], workers=[worker], hash=False)
        return layout, cuts, parts
    columns = {name: value for name, value in data.items() if value is not None}
    group = columns.pop("group", None)
    if model.query_column is not None:
        columns["qid"] = _query(model.query_column, columns)
        columns["X"] = columns["X"].drop(columns=[model.query_column])
    if "y" not in columns:
        raise ValueError("BoostedRanker requires y to be passed, but the target y is None")
    if (group is None) == ("qid" not in columns):
        raise ValueError("exactly one of qid and group must be given on Dask, got both or none")
    blocks = aligned_blocks(columns)
    layout = make_layout(blocks, None if group is not None else [block.pop("qid") for block in blocks], group)
    cuts = layout.cut(len(workers))
    # They are read where they are needed, in so far as this is known.
    parts = [
        client.compute(part, workers=[worker], allow_other_workers=True)
        for part, worker in zip(whole_lists(blocks, layout, cuts), workers, strict=False)
    ]
    return layout, cuts, parts


def _query(column: Any, columns: dict[str, Any]) -> Any:
    if "qid" in columns:
        raise ValueError("qid must be None when query_column is set, got both")
    if column not in getattr(columns["X"], "columns", ()):
        raise ValueError(f"query_column {column!r} is not among the columns of X")
    return columns["X"][column]


def _sampled(layout: Layout, cuts: IntArray, ranker: Any) -> list[IntArray] | None:
    """The rows of each part that bins are found from, or None for all of them."""
    size = int(main_names(ranker.lightgbm_params or {}).get("bin_construct_sample_cnt", _SAMPLED_ROWS))
    if size >= layout.rows:
        return None
    generator = np.random.default_rng(ranker.random_state or 0)
    drawn = np.sort(generator.choice(layout.rows, size, replace=False, shuffle=False))
    numbers = np.split(drawn, np.searchsorted(drawn, cuts[1:-1]))
    return [rows - first for rows, first in zip(numbers, cuts[:-1], strict=True)]


# On the workers


def _train(
    member: Member,
    model: Any,
    held: tuple[Block, Sequence[tuple[str, Block | None]]],
    share: _Share,
    init_model: Any,
) -> dict[str, Any]:
    """Fit to the lists of this worker, together with the others. All come to the same model; the first returns it."""
    part, evaluation = held
    model = clone(model).set_params(progress=False, query_column=None)
    train = _labelled(model._rows(**part, reset=True), "train")
    model.n_jobs = threads_to_fit(model.n_jobs, train.X, import_distributed().get_worker().state.nthreads)
    sets = []
    for name, rows in evaluation:
        # A list of one row has no value of any metric: it stands for none.
        rows = rows or {"X": part["X"][:1], "y": np.zeros(1), "group": np.ones(1, np.int64)}
        sets.append(_labelled(model._rows(**rows), name))
    model._grow(train, sets, init_model, _Worker(member, model, part["X"], share))
    return {name: value for name, value in vars(model).items() if name.endswith("_")} if member.rank == 0 else {}


def _labelled(rows: Any, name: str) -> LabelledRows:
    return LabelledRows(rows.X, rows.labels, rows.offsets, rows.weights, name)


class _Worker(Machine):
    def __init__(self, member: Member, model: Any, X: Any, share: _Share) -> None:
        self.rank = member.rank
        self._member, self._model, self._X, self._share = member, model, X, share

    @property
    def params(self) -> dict[str, Any]:
        learner: dict[str, Any] = {"tree_learner": "data", "num_machines": self._member.members}
        # LightGBM would judge by the sample which features can be split at all.
        return learner | ({"feature_pre_filter": False} if self._share.sampled is not None else {})

    def total(self, values: Any) -> Any:
        return self._member.total(values)

    def row_draws(self, seed: int) -> np.random.Generator:
        return _RowDraws(seed, self._share.first, self._share.rows)

    def dataset_options(self, options: dict[str, Any]) -> dict[str, Any]:
        sample, rows = self._X, self._share.sampled
        if rows is not None:
            sample = sample.iloc[rows] if hasattr(sample, "iloc") else sample[rows]
        features = self._model._features(join_rows(self._member.gather(sample)), reset=False)
        bins = import_lightgbm().Dataset(features, free_raw_data=True, **options)
        return {**options, "reference": bins.construct()}

    @contextmanager
    def connected(self) -> Iterator[None]:
        if self._member.members == 1:
            yield
            return
        distributed = import_distributed()
        host = socket.gethostbyname(distributed.comm.get_address_host(distributed.get_worker().address))
        with socket.socket() as reserved:
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(("", 0))
            port = reserved.getsockname()[1]
            machines = self._member.gather(f"{host}:{port}")
        lightgbm = import_lightgbm()
        # LightGBM's links belong to the thread; any model can open and close them.
        link = lightgbm.Booster(
            {"verbose": -1}, lightgbm.Dataset(np.zeros((2, 1)), np.zeros(2), params={"verbose": -1})
        )
        minutes = (self._model.lightgbm_params or {}).get("time_out", _MINUTES_TO_CONNECT)
        link.set_network(machines, port, minutes, len(machines))
        known = _links.add({int(machine.rpartition(":")[2]) for machine in machines})
        try:
            yield
        finally:
            _links.remove(known)
            link.free_network()


class _RowDraws(np.random.Generator):
    """Numbers for some of all rows: those that one machine would draw for them."""

    def __init__(self, seed: int, first: int, rows: int) -> None:
        super().__init__(np.random.PCG64(seed))
        self._first, self._rows = first, rows

    def random(self, size: int) -> Any:  # type: ignore[override]
        generator: Any = self.bit_generator
        generator.advance(self._first)
        drawn = super().random(size)
        generator.advance(self._rows - self._first - size)
        return drawn


class _Links:
    """Open sockets of LightGBM in this process.

    If the other end is lost, LightGBM reads from its socket for ever. A socket that is replaced by a file makes it stop
    with an error.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[set[tuple[int, int]]] = []

    def add(self, ports: set[int]) -> set[tuple[int, int]]:
        found = {(number, os.fstat(number).st_ino) for number in _sockets() if _ports_of(number) & ports}
        with self._lock:
            self._sockets.append(found)
        return found

    def remove(self, known: set[tuple[int, int]]) -> None:
        with self._lock:
            self._sockets.remove(known)

    def cut(self) -> None:
        with self._lock, Path(os.devnull).open("r+b") as nothing:
            for number, identity in set().union(*self._sockets):
                with suppress(OSError):  # closed by now
                    if os.fstat(number).st_ino == identity:
                        os.dup2(nothing.fileno(), number)


def _sockets() -> Iterator[int]:
    folder = Path("/dev/fd")  # not on Windows
    for number in [int(entry.name) for entry in folder.iterdir()] if folder.is_dir() else ():
        with suppress(OSError):  # that of the folder itself
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                yield number


def _ports_of(number: int) -> set[int]:
    """The ports at both ends of a connection by TCP."""
    with socket.socket(fileno=os.dup(number)) as copy:
        if copy.family not in (socket.AF_INET, socket.AF_INET6):
            return set()
        with suppress(OSError):  # not connected
            return {copy.getsockname()[1], copy.getpeername()[1]}
    return set()


_links = _Links()


def cut_links() -> None:
    """End all trainings of this process that wait for others."""
    _links.cut()
