"""Trees, aggregation and metrics on Dask against the same computations on one machine."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, get_worker
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import run_alone
from scipy.sparse import csr_matrix

from plackett import BoostedRanker, RankAggregator
from plackett.aggregation.ballots import as_ballots, make_rankings
from plackett.aggregation.connectivity import connectivity, is_separated, steps_of
from plackett.boosted import make_objective
from plackett.boosted.objectives import PartitionObjective
from plackett.boosted.plrank import PLRankObjective
from plackett.data import Ballots, MultilabelData, RankingData, make_graded_lists
from plackett.distributed import DaskLabels, WorkerLostError
from plackett.distributed.dask_aggregation import _condensed, _union
from plackett.distributed.dask_boosted import _links, _RowDraws
from plackett.distributed.dask_lists import Layout, aligned_blocks, make_layout, whole_lists
from plackett.distributed.dask_workers import Member, run_together
from plackett.errors import NoMaximumError
from plackett.evaluation import compare_systems, evaluate
from plackett.lists import offsets_from_sizes
from plackett.metrics import ndcg

_LARGEST_WAIT = 1200  # seconds: far more than anything here needs on a busy machine


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        pytest.fail(f"still running after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def cluster_of(workers: int, *, processes: bool) -> Iterator[Client]:
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, processes=processes, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Workers in threads; LightGBM links them like processes."""
    with cluster_of(2, processes=False) as client:
        yield client


@pytest.fixture(autouse=True)
def limit_every_test() -> Iterator[None]:
    with time_limit(_LARGEST_WAIT):
        yield


@pytest.fixture(scope="module")
def data() -> RankingData:
    return make_graded_lists(60, mean_length=12, n_features=7, random_state=0)[0]


@pytest.fixture(scope="module")
def valid() -> RankingData:
    return make_graded_lists(20, mean_length=12, n_features=7, random_state=1)[0]


def spread(data: RankingData, rows: int = 101) -> dict[str, Any]:
    """Dask arrays whose blocks split lists."""
    return {
        "X": da.from_array(data.X, chunks=(rows, 3)),
        "y": da.from_array(data.y, chunks=rows // 2),
        "qid": da.from_array(data.qid, chunks=rows),
    }


def ranker(**options: Any) -> BoostedRanker:
    given = {"n_estimators": 5, "num_leaves": 5, "min_child_samples": 5, "random_state": 3, "n_jobs": 1}
    return BoostedRanker(**{**given, "progress": False, **options})


# Lists


@given(
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=12),
    block=st.integers(1, 9),
    parts=st.integers(1, 5),
    by_group=st.booleans(),
)
@settings(max_examples=30)
def test_lists_are_divided_whole_and_evenly(sizes: list[int], block: int, parts: int, by_group: bool) -> None:
    rows = sum(sizes)
    qid = np.repeat(np.arange(len(sizes)), sizes)
    with dask.config.set(scheduler="sync"):
        columns = {"X": da.from_array(np.arange(rows), chunks=block)}
        blocks = aligned_blocks(columns if by_group else {**columns, "qid": da.from_array(qid, chunks=block)})
        runs = None if by_group else [block.pop("qid") for block in blocks]
        layout = make_layout(blocks, runs, sizes if by_group else None)
        cuts = layout.cut(parts)
        found = dask.compute(*whole_lists(blocks, layout, cuts))
    np.testing.assert_array_equal(layout.lists, offsets_from_sizes(np.array(sizes)))
    np.testing.assert_array_equal(np.concatenate([part["X"] for part in found]), np.arange(rows))
    assert [size for part in found for size in part["group"]] == sizes
    assert [len(part["X"]) for part in found] == [sum(part["group"]) for part in found]
    assert len(found) <= parts
    assert max(len(part["X"]) for part in found) <= rows / parts + max(sizes)


def test_workers_draw_the_same_rows_as_one_machine() -> None:
    alone = np.random.default_rng(7)
    members = [_RowDraws(7, first, 10) for first in (0, 4)]
    for _ in range(3):
        parts = [member.random(size) for member, size in zip(members, (4, 6), strict=True)]
        np.testing.assert_array_equal(np.concatenate(parts), alone.random(10))


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"qid": da.from_array(np.array([1, 2, 1, 2]), chunks=2)},
            "qid must keep the rows .* next to each other .* sort",
        ),
        (
            {"qid": da.from_array(np.array([1, 2, 1, 1]), chunks=4)},
            "qid must keep the rows .* next to each other .* sort",
        ),
        ({"qid": da.from_array(np.array([1.0, np.nan, 2.0, 2.0]), chunks=2)}, "qid must not be missing"),
        ({"qid": da.from_array(np.ones(5), chunks=2)}, "qid must hold one value for each of the 4 rows, got 5"),
        ({"qid": None}, "exactly one of qid and group must be given on Dask"),
        ({"group": [4]}, "exactly one of qid and group must be given on Dask"),
        ({"qid": None, "group": [3, 3]}, "group must add up to the number of rows, 4, got a sum of 6"),
        ({"y": None}, "requires y to be passed"),
        ({"y": np.zeros(4)}, "y must be a Dask array, DataFrame or Series, got ndarray"),
        ({"callbacks": [print]}, "callbacks and checkpoint are not supported on Dask"),
        ({"checkpoint": "state"}, "callbacks and checkpoint are not supported on Dask"),
        ({"client": 3}, "client must be a synchronous distributed.Client or an address, got 3"),
        ({"y": da.from_array(np.array([0, 1, np.nan, 1]), chunks=2)}, "y must be finite"),
        ({"sample_weight": da.from_array(np.array([1.0, 2.0, 1.0, 1.0]), chunks=2)}, "constant within a list"),
    ],
)
def test_bad_arguments_are_refused(changes: dict[str, Any], message: str) -> None:
    arrays = {"X": np.arange(8.0).reshape(4, 2), "y": np.array([0, 1, 0, 1]), "qid": np.array([1, 1, 2, 2])}
    given = {name: da.from_array(array, chunks=(2, *array.shape[1:])) for name, array in arrays.items()}
    model = ranker()
    with pytest.raises(ValueError, match=message):
        model.fit(**{**given, **changes})
    assert vars(model) == vars(ranker())


@pytest.mark.usefixtures("client")
def test_partitions_of_unknown_size_must_agree() -> None:
    frame = dd.from_pandas(pd.DataFrame({"a": np.arange(6.0)}), npartitions=2)
    four = dd.from_pandas(pd.Series(np.arange(6)), npartitions=3)
    with pytest.raises(ValueError, match="y must have the 2 partitions of X, got 3"):
        ranker().fit(frame, four, group=[6])
    uneven = da.from_array(np.arange(6), chunks=((2, 4),))
    with pytest.raises(ValueError, match=r"y must be partitioned like the other columns, got [24] rows, not 3"):
        ranker().fit(frame, uneven, group=[6])


def test_score_refuses_dask_collections(data: RankingData) -> None:
    model = ranker(n_estimators=1).fit(data)
    with pytest.raises(ValueError, match="X must be in memory, got a Dask Array"):
        model.score(**spread(data))


def test_fit_needs_a_client() -> None:
    code = """
    import json
    import dask.array as da
    from plackett import BoostedRanker
    try:
        BoostedRanker().fit(da.zeros((4, 1)), da.zeros(4), group=[4])
    except ValueError as error:
        print(json.dumps(str(error)))
    """
    assert run_alone(code) == "client must be a distributed.Client or an address if no client is open, got None"


def test_dask_is_imported_only_when_used() -> None:
    code = """
    import json, sys
    import plackett.estimators, plackett.evaluation
    print(json.dumps(sorted({"dask", "distributed", "lightgbm"} & set(sys.modules))))
    """
    assert run_alone(code) == []


# Trees


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"leaves": "lightgbm"},
        # Several machines estimate the number of rows in a leaf from its hessian, which varies a lot.
        {"top": 3, "tier_weights": "gain", "min_child_samples": 1},
        {"objective": "plrank"},
        {"objective": "plrank", "leaves": "lightgbm", "n_permutations": 3},
        {"objective": "mart"},
        {"objective": "c-klmart"},
        {"objective": "c-cosmart"},
        {"objective": "attrank"},
        {"objective": "lambdamart"},
        {"colsample_bytree": 0.5},
    ],
    ids=str,
)
def test_trees_match_one_machine(data: RankingData, valid: RankingData, options: dict[str, Any]) -> None:
    weights = (1.0 + np.arange(len(data)) % 3)[np.repeat(np.arange(len(data)), np.diff(data.offsets))]
    settings = {**options, "eval_metric": ["ndcg@5", "map"], "early_stopping_rounds": 3}
    alone = ranker(**settings).fit(data, eval_set=[valid, data], sample_weight=weights)
    parts = spread(valid, 31)
    together = ranker(**settings).fit(
        **spread(data),
        sample_weight=da.from_array(weights, chunks=77),
        eval_set=[(parts["X"], parts["y"], parts["qid"]), data],
    )
    np.testing.assert_allclose(together.predict(data.X), alone.predict(data.X), atol=1e-9)
    assert together.best_iteration_ == alone.best_iteration_ == together.booster_.current_iteration()
    np.testing.assert_allclose(together.booster_.predict(data.X, raw_score=True), together.predict(data.X))
    for name in ("valid_0", "valid_1"):
        for metric in ("ndcg@5", "map"):
            np.testing.assert_allclose(together.evals_result_[name][metric], alone.evals_result_[name][metric])


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("name", ["partition", "plrank"])
def test_objectives_match_at_the_first_iteration(data: RankingData, name: str) -> None:
    options = {"random_state": 3} if name == "plrank" else {}
    objective = make_objective(name, data.y, data.offsets, **options)
    middle = int(data.offsets[30])
    if name == "partition":
        of_parts: list[Any] = [
            PartitionObjective(data.y[rows], data.offsets[lists] - data.offsets[lists][0], np.ones(30))
            for rows, lists in ((slice(middle), slice(31)), (slice(middle, None), slice(30, None)))
        ]
    else:
        of_parts = [
            PLRankObjective(
                data.y[rows],
                data.offsets[lists] - data.offsets[lists][0],
                np.ones(30),
                random_state=_RowDraws(3, first, len(data.y)),
            )
            for rows, lists, first in ((slice(middle), slice(31), 0), (slice(middle, None), slice(30, None), middle))
        ]
    one_tree = ranker(objective=name, n_estimators=1).fit(**spread(data)).predict(data.X)
    for scores in (np.zeros(len(data.y)), one_tree):
        parts = of_parts[0].value(scores[:middle]) + of_parts[1].value(scores[middle:])
        np.testing.assert_allclose(parts, objective.value(scores), rtol=1e-12)
    alone = ranker(objective=name, n_estimators=1).fit(data).predict(data.X)
    np.testing.assert_allclose(objective.value(one_tree), objective.value(alone), rtol=1e-12)


def half_ranknet(scores: Any, labels: Any, offsets: Any) -> Any:
    """Half the RankNet loss of each list, written out; workers receive its code."""
    import torch

    losses = []
    for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        above = labels[a:b, None] > labels[None, a:b]
        margins = scores[a:b, None] - scores[None, a:b]
        losses.append(0.5 * (torch.nn.functional.softplus(-margins) * above).sum())
    return torch.stack(losses)


@pytest.mark.usefixtures("client")
def test_user_function_can_be_the_objective(data: RankingData) -> None:
    alone = ranker(objective=half_ranknet).fit(data)
    together = ranker(objective=half_ranknet).fit(**spread(data))
    np.testing.assert_allclose(together.predict(data.X), alone.predict(data.X), atol=1e-9)


def test_mcrank_uses_the_classes_of_all_workers(client: Client) -> None:
    """Trees differ from one machine: LightGBM starts with the class frequencies of a worker's own rows."""
    data, _ = make_graded_lists(30, mean_length=20, n_features=7, random_state=5)
    labels = np.where(np.arange(len(data.y)) < len(data.y) // 2, np.minimum(data.y, 1), data.y)
    model = ranker(objective="mcrank").fit(data.X, labels, qid=data.qid, client=client)
    assert model.gains_ == [2.0**grade - 1.0 for grade in range(int(labels.max()) + 1)]
    assert ndcg(model.predict(data.X), labels, offsets=data.offsets) > ndcg(
        np.zeros(len(labels)), labels, offsets=data.offsets
    )


@pytest.mark.usefixtures("client")
def test_tables_and_sparse_blocks_match_one_machine(data: RankingData) -> None:
    alone = ranker().fit(data)
    frame = pd.DataFrame(data.X, columns=[f"f{i}" for i in range(7)])
    frame["query"], frame["label"] = data.qid, data.y
    table = dd.from_pandas(frame, npartitions=3)
    model = ranker(query_column="query").fit(table.drop(columns=["label"]), table["label"])
    np.testing.assert_allclose(model.predict(frame.drop(columns=["label"])), alone.predict(data.X), atol=1e-9)
    assert list(model.feature_names_in_) == [f"f{i}" for i in range(7)]
    scores = model.predict(table.drop(columns=["label", "query"]))
    assert isinstance(scores, da.Array)
    np.testing.assert_allclose(scores.compute(), alone.predict(data.X), atol=1e-9)

    arrays = spread(data)
    sparse = arrays["X"].rechunk((101, 7)).map_blocks(csr_matrix)
    group = np.diff(data.offsets)
    model = ranker().fit(sparse, arrays["y"], group=group)
    np.testing.assert_allclose(model.predict(data.X), alone.predict(data.X), atol=1e-9)
    np.testing.assert_allclose(model.predict(sparse).compute(), alone.predict(data.X), atol=1e-9)


def test_rows_in_memory_can_be_in_any_order(client: Client, data: RankingData, rng: np.random.Generator) -> None:
    order = rng.permutation(len(data.y))
    alone = ranker().fit(data.X[order], data.y[order], qid=data.qid[order])
    together = ranker().fit(data.X[order], data.y[order], qid=data.qid[order], client=client)
    np.testing.assert_allclose(together.predict(data.X), alone.predict(data.X), atol=1e-9)


@pytest.mark.usefixtures("client")
def test_predictions_of_a_collection_match_those_in_memory(data: RankingData) -> None:
    model = ranker().fit(data)
    X = da.concatenate([da.zeros((0, 7)), spread(data)["X"]])
    scores = model.predict(X)
    assert scores.shape == (len(data.y),)
    np.testing.assert_array_equal(scores.compute(), model.predict(data.X))
    found = model.predict(X, contributions=True, num_iteration=2)
    assert found.shape == (len(data.y), 8)
    np.testing.assert_allclose(found.compute(), model.predict(data.X, contributions=True, num_iteration=2))


def test_model_from_a_cluster_can_be_saved_and_continued(client: Client, data: RankingData, tmp_path: Any) -> None:
    whole = ranker(n_estimators=6).fit(data)
    first = ranker(n_estimators=3).fit(**spread(data))
    first.save(tmp_path / "model")
    loaded = BoostedRanker.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(data.X), first.predict(data.X))
    more = ranker(n_estimators=3).fit(data, init_model=loaded, client=client.scheduler.address)
    np.testing.assert_allclose(more.predict(data.X), whole.predict(data.X), atol=1e-9)


def test_more_workers_than_lists_work(client: Client, data: RankingData, valid: RankingData) -> None:
    one_list = valid.select([0])
    options = {"early_stopping_rounds": 2, "min_child_samples": 1}
    for train in (data, data.select([1])):
        alone = ranker(**options).fit(train, eval_set=one_list)
        together = ranker(**options).fit(train, eval_set=one_list, client=client)
        np.testing.assert_allclose(together.predict(data.X), alone.predict(data.X), atol=1e-9)


def test_bins_can_come_from_a_sample_of_rows(client: Client, data: RankingData) -> None:
    """One machine samples other rows and has other bins, but the trees are about as good on the training lists."""
    few = {"lightgbm_params": {"bin_construct_sample_cnt": 300}, "n_estimators": 30}
    scores = [
        ranker(**few).fit(data, **where).score(data.X, data.y, qid=data.qid) for where in ({}, {"client": client})
    ]
    assert abs(scores[0] - scores[1]) < 0.03
    assert min(scores) > 0.8


def test_failure_on_one_worker_stops_the_other(client: Client, data: RankingData, monkeypatch: Any) -> None:
    """LightGBM on the other worker would wait forever: its links are cut, so that it can take other work."""
    original, lock, calls = PartitionObjective.derivatives, threading.Lock(), []

    def failing(self: PartitionObjective, scores: Any) -> Any:
        with lock:
            calls.append(0)
            if len(calls) == 7:
                raise ValueError("the seventh call")
        return original(self, scores)

    monkeypatch.setattr(PartitionObjective, "derivatives", failing)
    model = ranker(n_estimators=50, leaves="lightgbm")
    with pytest.raises(ValueError, match="the seventh call"):
        model.fit(data, client=client)
    assert not hasattr(model, "booster_")
    monkeypatch.undo()
    assert model.fit(data, client=client).booster_.num_trees() == 50


_cut = threading.Event()  # of the connection between the workers, which are threads of this process


def _fail(member: Member, unconnected: int) -> None:
    if member.rank == unconnected:
        _cut.set()
        raise WorkerLostError("the connection to another worker is lost")
    _cut.wait()
    raise ValueError("the reason")


def _stop_nothing() -> None:
    """Both tasks end by themselves."""


@pytest.mark.parametrize("unconnected", [0, 1])
def test_a_failure_is_reported_and_not_its_consequence(client: Client, unconnected: int) -> None:
    """The task that lost its connection may end before the one whose failure cut it."""
    _cut.clear()
    with pytest.raises(ValueError, match="the reason"):
        run_together(client, sorted(client.nthreads()), _fail, [(unconnected,)] * 2, _stop_nothing)


# Lost workers


def _kill(client: Client, worker: str, when: Callable[[], bool]) -> None:
    process = client.run(os.getpid, workers=[worker])[worker]

    def run() -> None:
        while not when():
            time.sleep(0.1)
        os.kill(process, signal.SIGKILL)

    threading.Thread(target=run, daemon=True).start()


def _is_linked() -> bool:
    return bool(_links._sockets)


def test_lost_worker_is_reported_and_ballots_are_recomputed(data: RankingData, tmp_path: Path) -> None:
    rankings = _rankings(np.random.default_rng(0), 400)
    alone = RankAggregator().fit(rankings)
    with cluster_of(3, processes=True) as client:
        together = ranker().fit(data, client=client)  # training also works with workers in processes
        np.testing.assert_allclose(together.predict(data.X), ranker().fit(data).predict(data.X), atol=1e-9)

        lost, next_one, left = sorted(client.nthreads())
        model = ranker(n_estimators=10**6, leaves="lightgbm")
        _kill(client, lost, lambda: all(client.run(_is_linked).values()))
        with pytest.raises(WorkerLostError, match=f"{lost} left the cluster"):
            model.fit(data, client=client)
        assert vars(model) == vars(ranker(n_estimators=10**6, leaves="lightgbm"))
        assert {next_one, left} <= set(client.nthreads())
        assert model.set_params(n_estimators=2).fit(data, client=client).booster_.num_trees() == 2

        # Dask recomputes lost partitions of ballots. One worker processes some until it is killed; the other waits
        # until then.
        reached = tmp_path / "reached"

        def wait(ranking: Any) -> Any:
            if get_worker().address == next_one:
                reached.touch()
                threading.Event().wait()
            while not reached.exists():
                time.sleep(0.01)
            return ranking

        _kill(client, next_one, reached.exists)
        found = RankAggregator().fit(db.from_sequence(rankings, npartitions=8).map(wait))
        assert next_one not in client.nthreads()
        np.testing.assert_allclose(found.scores_, alone.scores_, atol=1e-9)


# Aggregation


def _rankings(rng: np.random.Generator, count: int, items: int = 8) -> list[Any]:
    """Rankings of some of the items, some with ties."""
    worths, made = rng.normal(size=items), []
    for _ in range(count):
        order = np.argsort(-(worths + rng.gumbel(size=items)))[: rng.integers(2, items)]
        names = [f"item {i}" for i in order]
        made.append([names[0], set(names[1:])] if rng.random() < 0.3 else names)
    return made


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prior": 0.5},
        {"ridge": 0.3},
        {"unranked": "last"},
        {"solver": "mm", "prior": 0.1},
        {"solver": "lbfgs", "tol": 1e-9},
    ],
    ids=str,
)
def test_worths_match_one_machine(options: dict[str, Any], rng: np.random.Generator) -> None:
    rankings = _rankings(rng, 150)
    alone = RankAggregator(**options).fit(rankings)
    first, second = rankings[:40], as_ballots(rankings[40:])
    nothing = replace(as_ballots([["item 3", "item 4"]]), weights=np.zeros(1))
    forms: list[Any] = [
        db.from_sequence(rankings, npartitions=5),
        [dask.delayed(first), dask.delayed([]), dask.delayed(second), dask.delayed(nothing)],
    ]
    with dask.config.set(scheduler="sync"):
        for ballots in forms:
            found = RankAggregator(**options).fit(ballots)
            assert found.items_ == alone.items_
            assert (found.n_ballots_, found.n_parameters_, found.solver_) == (150, alone.n_parameters_, alone.solver_)
            np.testing.assert_allclose(found.scores_, alone.scores_, atol=1e-9)
            np.testing.assert_allclose(found.covariance_, alone.covariance_, atol=1e-9)
            np.testing.assert_allclose(found.log_likelihood_, alone.log_likelihood_)
            np.testing.assert_allclose(found.null_log_likelihood_, alone.null_log_likelihood_)
            assert str(found.summary()) == str(alone.summary())


def test_arrays_features_and_weights_match_one_machine(rng: np.random.Generator, tmp_path: Any) -> None:
    orders = np.array([rng.permutation(5) for _ in range(60)])
    weights, X = rng.uniform(0.01, 0.4, size=60), rng.normal(size=(5, 2))
    with dask.config.set(scheduler="sync"):
        array = da.from_array(orders, chunks=(17, 2))
        for features in (None, X):
            alone = RankAggregator().fit(orders, X=features, sample_weight=weights)
            found = RankAggregator().fit(array, X=features, sample_weight=da.from_array(weights, chunks=17))
            np.testing.assert_allclose(found.scores_, alone.scores_, atol=1e-9)
            np.testing.assert_allclose(found.standard_errors_, alone.standard_errors_)
        np.testing.assert_allclose(found.coef_standard_errors_, alone.coef_standard_errors_)
        simple = RankAggregator(ridge=0.0).fit(array)
        assert simple.ballots_hash_ == RankAggregator().fit(array).ballots_hash_ != found.ballots_hash_
        with pytest.raises(ValueError, match="sample_weight must have the 4 partitions of ballots, got 1"):
            RankAggregator().fit(array, sample_weight=da.from_array(weights, chunks=60))
        with pytest.raises(ValueError, match="got a DataFrame: use to_dask_array"):
            RankAggregator().fit(dd.from_pandas(pd.DataFrame(orders), npartitions=2))
    found.save(tmp_path / "model")
    loaded = RankAggregator.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.covariance_, found.covariance_)
    with pytest.raises(ValueError, match="the bootstrap needs the ballots"):
        found.rank_intervals(method="bootstrap")


def test_names_of_ballots_keep_their_order() -> None:
    made = Ballots(
        np.array([0, 1, 1, 0]), np.array([1.0, 0, 1, 0]), np.array([0, 2, 4]), np.array([2.0, 1]), ["z", "a"]
    )
    alone = RankAggregator().fit(made)
    with dask.config.set(scheduler="sync"):
        found = RankAggregator().fit([dask.delayed(made.select([0])), dask.delayed(made.select([1]))])
    assert found.items_ == alone.items_ == ["z", "a"]
    np.testing.assert_allclose(found.scores_, alone.scores_, atol=1e-9)


def test_items_without_a_finite_worth_match_one_machine(rng: np.random.Generator) -> None:
    rankings = [
        *_rankings(rng, 50),
        ["best", "item 1"],
        ["best", {"item 2", "item 3"}],
        [{"item 1", "item 5"}, "worst"],
    ]
    bag = db.from_sequence(rankings, npartitions=4)
    with dask.config.set(scheduler="sync"):
        with pytest.raises(NoMaximumError) as alone:
            RankAggregator(on_infinite="error").fit(rankings)
        with pytest.raises(NoMaximumError) as together:
            RankAggregator(on_infinite="error").fit(bag)
        assert str(together.value) == str(alone.value)
        with pytest.warns(UserWarning, match="best"):
            one = RankAggregator(on_infinite="drop").fit(rankings)
        with pytest.warns(UserWarning, match="best"):
            many = RankAggregator(on_infinite="drop").fit(bag)
        assert many.dropped_items_ == one.dropped_items_ == ["best", "worst"]
        assert many.outside_ == one.outside_ == {"below": ["worst"], "above": ["best"]}
        ties = db.from_sequence([["a", "b"], ["b", "a"], [["a", "b"]]], npartitions=3)
        with pytest.warns(UserWarning, match=r"1 of 3 ballots \(33\.3%\) are ties of two items"):
            RankAggregator(ties="unknown").fit(ties)
        with pytest.raises(ValueError, match=r"1 of 3 ballots \(33\.3%\) are pairs that ended level"):
            RankAggregator().fit(ties)
        with pytest.raises(ValueError, match="ballots on Dask need ties='unknown'"):
            RankAggregator(ties="davidson").fit(ties)
        np.testing.assert_allclose(many.scores_, one.scores_, atol=1e-9)
        with pytest.raises(ValueError, match="at least one item above another"):
            RankAggregator().fit(db.from_sequence([["a"], ["b"]], npartitions=2))


@given(
    st.lists(
        st.lists(st.sets(st.integers(0, 6), min_size=1, max_size=3), min_size=1, max_size=3),
        min_size=2,
        max_size=8,
    ),
    st.integers(1, 4),
)
def test_connectivity_of_partitions_matches_all_ballots(drawn: list[list[set[int]]], size: int) -> None:
    rankings = [_without_repeats(ranking) for ranking in drawn]
    names = list(range(7))
    whole = steps_of(make_rankings(as_ballots(rankings, names)))
    parts = [make_rankings(as_ballots(rankings[i : i + size], names)) for i in range(0, len(rankings), size)]
    union = _union([_condensed(steps_of(part)) for part in parts])
    X = np.column_stack([np.arange(7.0), np.arange(7.0) ** 2])
    assert is_separated(union, X) == is_separated(whole, X)
    found, expected = connectivity(union), connectivity(whole)
    for name in ("kept", "above", "below", "apart", "unranked"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def _without_repeats(ranking: list[set[int]]) -> list[set[int]]:
    seen: set[int] = set()
    made = []
    for tier in ranking:
        if tier - seen:
            made.append(tier - seen)
        seen |= tier
    return made


# Metrics


def test_metrics_match_those_in_memory(data: RankingData, rng: np.random.Generator) -> None:
    systems = {"one": rng.normal(size=len(data.y)).round(1), "two": data.y + rng.normal(size=len(data.y))}
    metrics = ["ndcg@5", "err", "map", "mrr", "p@3", "recall@3", "tau-b", "log-likelihood"]
    expected = evaluate(data, systems, metrics, max_grade=5)
    arrays = spread(data)
    there = {name: da.from_array(scores, chunks=90) for name, scores in systems.items()}
    group = np.diff(data.offsets)
    with dask.config.set(scheduler="sync"):
        for labels in (DaskLabels(arrays["y"], arrays["qid"]), DaskLabels(arrays["y"], group=group)):
            found = evaluate(labels, there, metrics, max_grade=5)
            for one, other in zip(found, expected, strict=True):
                assert (one.system, one.metric) == (other.system, other.metric)
                np.testing.assert_allclose(one.values, other.values, rtol=1e-12)
                np.testing.assert_allclose([one.value, *one.interval], [other.value, *other.interval], rtol=1e-12)
        first, second = compare_systems(found)["map"][0], compare_systems(expected)["map"][0]
        assert str(first) == str(second)
        with pytest.raises(ValueError, match='ties must be "average" or "stable" on Dask'):
            evaluate(labels, there, ["map"], ties="random")
    with pytest.raises(ValueError, match="at most one of qid and group"):
        DaskLabels(arrays["y"], arrays["qid"], group)


def test_multilabel_metrics_match_those_in_memory(rng: np.random.Generator) -> None:
    Y = csr_matrix(rng.random((40, 12)) < 0.2, dtype=np.float64)
    scores, propensity = rng.normal(size=(40, 12)), rng.uniform(1.0, 3.0, 12)
    metrics = ["p@1", "ndcg@3", "psp@3"]
    options = {"inverse_propensity": propensity, "normalisation": "rows"}
    expected = evaluate(MultilabelData(csr_matrix((40, 1)), Y), {"it": scores}, metrics, **options)
    labels = DaskLabels(da.from_array(Y.toarray(), chunks=(9, 12)).map_blocks(csr_matrix))
    there = {"it": da.from_array(scores, chunks=(20, 5))}
    with dask.config.set(scheduler="sync"):
        found = evaluate(labels, there, metrics, **options)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one.values, other.values)
            np.testing.assert_allclose([one.value, *one.interval], [other.value, *other.interval])
        with pytest.raises(ValueError, match="metrics must be means over lists or rows on Dask, got coverage@3"):
            evaluate(labels, there, ["coverage@3"])
        with pytest.raises(ValueError, match='normalisation must be "rows" on Dask'):
            evaluate(labels, there, ["psp@3"], inverse_propensity=propensity)


def test_layout_cuts_at_lists() -> None:
    layout = Layout(np.array([0, 3, 8]), np.array([0, 2, 7, 8]))
    assert layout.rows == 8
    assert layout.cut(2).tolist() == [0, 2, 8]
    assert layout.cut(3).tolist() == [0, 2, 7, 8]
    assert layout.sizes(2, 8).tolist() == [5, 1]
