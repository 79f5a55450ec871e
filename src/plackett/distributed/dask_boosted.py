"""BoostedRanker on Dask: every worker trains on its own lists, and LightGBM's data-parallel learner joins them.

The trees are those of a single machine. LightGBM adds up histograms over workers; the other sums over lists,
derivatives along leaves (Newton steps) and metrics, are added up in a `Meeting`. All workers find bins from the same
sample of rows, which is all rows if there are no more than bin_construct_sample_cnt.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from plackett.arguments import as_features
from plackett.boosted.fitting import TreeModel, TreeSettings, fit_trees
from plackett.boosted.lightgbm_parameters import main_names, threads_to_fit
from plackett.boosted.trainer import TrainingPeers, import_lightgbm
from plackett.data.listed_rows import ListedRows, make_listed_rows
from plackett.distributed.dask_lists import Block, DaskRows, Layout, join_rows, whole_lists
from plackett.distributed.dask_workers import (
    Member,
    WorkerLostError,
    addresses,
    all_present,
    hold,
    import_distributed,
    open_client,
    run_together,
)
from plackett.lists import IntArray, Lists, make_lists

_SAMPLED_ROWS = 200_000  # LightGBM's default of bin_construct_sample_cnt
_MINUTES_TO_CONNECT = 120  # LightGBM's default of time_out

Rows = ListedRows | DaskRows


@dataclass(frozen=True)
class _Share:
    """A worker's place among all rows: its first row, the number of all rows, and its rows that bins are found from."""

    first: int
    rows: int
    sampled: IntArray | None


def fit_on_workers(
    settings: TreeSettings, client: Any, train: Rows, evaluation: Sequence[Rows], init_model: Any
) -> TreeModel:
    """Fit trees on the workers of a cluster, to rows in memory or in Dask collections."""
    with open_client(client) as opened:
        workers = addresses(opened)
        if not workers:
            raise ValueError("client must have workers, got a cluster without any")
        with all_present(opened, workers):
            return _fit(opened, workers, settings, train, evaluation, init_model)


def _fit(
    client: Any,
    workers: Sequence[str],
    settings: TreeSettings,
    train: Rows,
    evaluation: Sequence[Rows],
    init_model: Any,
) -> TreeModel:
    layout, cuts, parts = _distribute_rows(client, workers, train)
    if layout.rows < 2:
        raise ValueError(f"X must hold at least two rows, got {layout.rows}: 1 sample cannot be ranked")
    evaluated = [(rows.name, _distribute_rows(client, workers[: len(parts)], rows)[2]) for rows in evaluation]
    workers, sampled = workers[: len(parts)], _rows_for_bins(layout, cuts, settings)
    evaluation_parts = [
        [(name, found[rank] if rank < len(found) else None) for name, found in evaluated] for rank in range(len(parts))
    ]
    held = hold(client, workers, list(zip(parts, evaluation_parts, strict=True)))
    del parts, evaluated, evaluation_parts  # frees memory of the workers
    arguments = [
        (settings, rows, _Share(int(cuts[rank]), layout.rows, sampled[rank] if sampled else None), init_model)
        for rank, rows in enumerate(held)
    ]
    model: TreeModel = run_together(client, workers, _train, arguments, cut_links)[0]
    return model


def _distribute_rows(client: Any, workers: Sequence[str], rows: Rows) -> tuple[Layout, IntArray, list[Any]]:
    """Distribute rows in parts of whole lists and about equal size, one per worker. Returns layout, cuts and parts."""
    if isinstance(rows, ListedRows):
        layout = Layout(np.array([0, len(rows)]), np.unique(rows.offsets))
        cuts = layout.cut(len(workers))
        parts = []
        for first, last, worker in zip(cuts[:-1], cuts[1:], workers, strict=False):
            parts += client.scatter([rows.between(int(first), int(last))], workers=[worker], hash=False)
        return layout, cuts, parts
    blocks, layout = rows.blocks()
    cuts = layout.cut(len(workers))
    # Parts are read on the workers that need them, if these can be reached.
    parts = [
        client.compute(part, workers=[worker], allow_other_workers=True)
        for part, worker in zip(whole_lists(blocks, layout, cuts), workers, strict=False)
    ]
    return layout, cuts, parts


def _rows_for_bins(layout: Layout, cuts: IntArray, settings: TreeSettings) -> list[IntArray] | None:
    """The rows of each part that bins are found from; None: all of them."""
    size = int(main_names(settings.lightgbm_params or {}).get("bin_construct_sample_cnt", _SAMPLED_ROWS))
    if size >= layout.rows:
        return None
    generator = np.random.default_rng(settings.seed)
    drawn = np.sort(generator.choice(layout.rows, size, replace=False, shuffle=False))
    numbers = np.split(drawn, np.searchsorted(drawn, cuts[1:-1]))
    return [rows - first for rows, first in zip(numbers, cuts[:-1], strict=True)]


# On the workers


def _train(
    member: Member,
    settings: TreeSettings,
    held: tuple[ListedRows | Block, Sequence[tuple[str, ListedRows | Block | None]]],
    share: _Share,
    init_model: Any,
) -> TreeModel | None:
    """Fit to the lists of this worker, together with the others. All get the same model; the first returns it."""
    train = _rows_of_part(held[0], "train")
    threads = threads_to_fit(settings.n_jobs, train.X, import_distributed().get_worker().state.nthreads)
    settings = replace(settings, progress=False, n_jobs=threads)
    # No metric has a value for a list of one row, so that it can stand for a part without rows.
    nothing = ListedRows(train.X[:1], np.zeros(1), Lists(np.array([0, 1])), np.ones(1))
    evaluation = [replace(nothing, name=name) if part is None else _rows_of_part(part, name) for name, part in held[1]]
    peers = _WorkerPeers(member, settings, share)
    model = fit_trees(settings, train, evaluation, init_model=init_model, peers=peers)
    return model if member.rank == 0 else None


def _rows_of_part(part: ListedRows | Block, name: str) -> ListedRows:
    """The rows of a part; those that come from Dask collections are checked here."""
    if isinstance(part, ListedRows):
        return part
    X = as_features(part["X"], categories=True)
    lists = make_lists(X.shape[0], group=part["group"])
    return make_listed_rows(X, part["y"], lists, part.get("sample_weight"), name)


class _WorkerPeers(TrainingPeers):
    def __init__(self, member: Member, settings: TreeSettings, share: _Share) -> None:
        self.rank = member.rank
        self._member, self._settings, self._share = member, settings, share

    @property
    def params(self) -> dict[str, Any]:
        learner: dict[str, Any] = {"tree_learner": "data", "num_machines": self._member.members}
        # Otherwise LightGBM would drop features that cannot be split in the sample.
        return learner | ({"feature_pre_filter": False} if self._share.sampled is not None else {})

    def total(self, values: Any) -> Any:
        return self._member.total(values)

    def row_draws(self, seed: int) -> np.random.Generator:
        return _RowDraws(seed, self._share.first, self._share.rows)

    def dataset_options(self, options: dict[str, Any], train: ListedRows) -> dict[str, Any]:
        sample, rows = train.X, self._share.sampled
        if rows is not None:
            sample = sample.iloc[rows] if hasattr(sample, "iloc") else sample[rows]
        features = join_rows(self._member.gather(sample))
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
        # LightGBM's connections belong to the thread; any model can open and close them.
        link = lightgbm.Booster(
            {"verbose": -1}, lightgbm.Dataset(np.zeros((2, 1)), np.zeros(2), params={"verbose": -1})
        )
        minutes = (self._settings.lightgbm_params or {}).get("time_out", _MINUTES_TO_CONNECT)
        link.set_network(machines, port, minutes, len(machines))
        known = _links.add({int(machine.rpartition(":")[2]) for machine in machines})
        try:
            yield
        except lightgbm.basic.LightGBMError as error:
            if "socket" in str(error).lower():
                raise WorkerLostError(f"the connection to another worker is lost: {error}") from error
            raise
        finally:
            _links.remove(known)
            link.free_network()


class _RowDraws(np.random.Generator):
    """Random numbers for some of all rows: the same that a single machine would draw for them."""

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

    If the other end is lost, LightGBM reads from its socket forever. Replacing the socket by a file makes it stop with
    an error.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[set[tuple[int, int]]] = []

    def add(self, ports: set[int]) -> set[tuple[int, int]]:
        found = {(number, identity) for number, identity, ends in _connections() if ends & ports}
        with self._lock:
            self._sockets.append(found)
        return found

    def remove(self, known: set[tuple[int, int]]) -> None:
        with self._lock:
            self._sockets.remove(known)

    def cut(self) -> None:
        with self._lock, Path(os.devnull).open("r+b") as nothing:
            for number, identity in set().union(*self._sockets):
                with suppress(OSError):  # it is closed by now
                    if os.fstat(number).st_ino == identity:
                        os.dup2(nothing.fileno(), number)


def _connections() -> Iterator[tuple[int, int, set[int]]]:
    """Descriptor, identity and the ports at both ends of the TCP connections of this process."""
    folder = Path("/dev/fd")  # not on Windows
    for number in [int(entry.name) for entry in folder.iterdir()] if folder.is_dir() else ():
        with suppress(OSError):  # not connected, or closed since by another thread
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as copy:
                if copy.family in (socket.AF_INET, socket.AF_INET6):
                    ends = {copy.getsockname()[1], copy.getpeername()[1]}
                    yield number, os.fstat(copy.fileno()).st_ino, ends


_links = _Links()


def cut_links() -> None:
    """End all training runs of this process that wait for others."""
    _links.cut()
