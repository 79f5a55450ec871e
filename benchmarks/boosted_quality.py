"""Ranking quality of boosted trees: every objective of BoostedRanker, compared with LightGBM, XGBoost and CatBoost.

    python benchmarks/boosted_quality.py

The first comparison uses lists simulated from Plackett-Luce with a known nonlinear score; the second uses LETOR MQ2008,
whose five parts must be under $PLACKETT_DATA or ../shared/data. All trees stop early by NDCG@10 on validation lists,
computed in the same way for every system. Prints tables and paired tests over queries, and writes
results/boosted_quality.json.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from measure import report, save
from rich.console import Console
from rich.progress import track
from scipy.optimize import minimize_scalar

from plackett import BoostedRanker, metrics
from plackett.boosted import lightgbm_metric, xgboost_metric
from plackett.data import RankingData, letor_folds, load_letor, make_graded_lists
from plackett.data.splits import Fold

console = Console()
ROUNDS, PATIENCE, MIN_ROWS, L2 = 500, 50, 20, 1.0
STOP_BY = "ndcg@10"

Predict = Callable[[Any], np.ndarray]
Values = dict[str, np.ndarray]  # metric -> one value per test list


@dataclass(frozen=True)
class Trees:
    leaves: int
    rate: float


@dataclass(frozen=True)
class System:
    """One side of the comparison. If it has several `choices` of options, validation selects one."""

    name: str
    objective: str
    library: str = "plackett"
    choices: tuple[dict[str, Any], ...] = ({},)


def ndcg10(scores: np.ndarray, data: RankingData) -> float:
    return metrics.ndcg(scores, data.y, k=10, offsets=data.offsets)


# One function per library: fit to fold.train, stop by fold.validation, and return a function that scores rows.


def fit_plackett(fold: Fold, objective: str, trees: Trees, **options: Any) -> Predict:
    model = BoostedRanker(
        objective,
        n_estimators=ROUNDS,
        learning_rate=trees.rate,
        num_leaves=trees.leaves,
        min_child_samples=MIN_ROWS,
        reg_lambda=L2,
        early_stopping_rounds=PATIENCE,
        n_jobs=1,
        random_state=0,
        progress=False,
        **{"eval_metric": STOP_BY, **options},
    )
    return model.fit(fold.train, eval_set=fold.validation).predict


def fit_lightgbm(fold: Fold, objective: str, trees: Trees) -> Predict:
    import lightgbm

    train = lightgbm.Dataset(fold.train.X, fold.train.y, group=np.diff(fold.train.offsets))
    validation = train.create_valid(fold.validation.X, fold.validation.y, group=np.diff(fold.validation.offsets))
    params = {
        "objective": objective, "learning_rate": trees.rate, "num_leaves": trees.leaves, "min_data_in_leaf": MIN_ROWS,
        "lambda_l2": L2, "metric": "None", "num_threads": 1, "seed": 0, "deterministic": True, "verbose": -1,
    }  # fmt: skip
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    model = lightgbm.train(
        params, train, ROUNDS, valid_sets=[validation], feval=lightgbm_metric(STOP_BY), callbacks=[stop]
    )
    return model.predict


def fit_xgboost(fold: Fold, objective: str, trees: Trees) -> Predict:
    import xgboost

    train, validation = (
        xgboost.DMatrix(part.X, part.y, group=np.diff(part.offsets)) for part in (fold.train, fold.validation)
    )
    params = {
        "objective": objective, "learning_rate": trees.rate, "max_leaves": trees.leaves, "max_depth": 0,
        "grow_policy": "lossguide", "tree_method": "hist", "lambda": L2, "disable_default_eval_metric": True,
        "nthread": 1, "seed": 0,
    }  # fmt: skip
    model = xgboost.train(
        params, train, ROUNDS, evals=[(validation, "validation")], custom_metric=xgboost_metric(STOP_BY),
        maximize=True, early_stopping_rounds=PATIENCE, verbose_eval=False,
    )  # fmt: skip
    rounds = (0, model.best_iteration + 1)
    return lambda X: model.predict(xgboost.DMatrix(X), iteration_range=rounds)


def fit_catboost(fold: Fold, objective: str, trees: Trees) -> Predict:
    import catboost

    train, validation = (
        catboost.Pool(part.X, part.y, group_id=np.repeat(np.arange(len(part)), np.diff(part.offsets)))
        for part in (fold.train, fold.validation)
    )
    model = catboost.CatBoost(
        {
            "loss_function": objective, "learning_rate": trees.rate, "max_leaves": trees.leaves,
            "grow_policy": "Lossguide", "min_data_in_leaf": MIN_ROWS, "l2_leaf_reg": L2, "iterations": ROUNDS,
            "eval_metric": "NDCG:top=10;type=Exp", "thread_count": 1, "random_seed": 0, "allow_writing_files": False,
            "logging_level": "Silent",
        }
    )  # fmt: skip
    # CatBoost stops by its own NDCG@10, which treats ties and lists without relevant documents differently. We then
    # select the best of its rounds by our NDCG@10.
    model.fit(train, eval_set=validation, early_stopping_rounds=PATIENCE, use_best_model=False)
    best_round = 1 + int(np.argmax([ndcg10(scores, fold.validation) for scores in model.staged_predict(validation)]))
    return lambda X: model.predict(X, ntree_end=best_round)


LIBRARIES: dict[str, Callable[..., Predict]] = {
    "plackett": fit_plackett,
    "lightgbm": fit_lightgbm,
    "xgboost": fit_xgboost,
    "catboost": fit_catboost,
}


# Data


SEEDS = range(5)
LISTS = (500, 300, 1000)  # training, validation, test


@cache
def simulated(seed: int) -> tuple[Fold, np.ndarray]:
    """Simulate lists of 40 items on average with grades 0 to 4; also return the true scores of the test lists."""
    data, truth = make_graded_lists(sum(LISTS), mean_length=40, n_features=14, random_state=seed)
    parts = np.split(np.arange(len(data)), np.cumsum(LISTS)[:-1])
    fold = Fold(*(data.select(part) for part in parts))
    return fold, truth[-len(fold.test.y) :]


@cache
def mq2008(number: int) -> Fold:
    folder = Path(os.environ.get("PLACKETT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "mq2008"
    return list(letor_folds([load_letor(folder / f"S{k}.txt.xz") for k in range(1, 6)]))[number]


PROBLEMS: dict[str, Callable[[int], Fold]] = {"simulation": lambda seed: simulated(seed)[0], "mq2008": mq2008}
HIGHEST_GRADE = {"simulation": 4, "mq2008": 2}


# One fit


@dataclass(frozen=True)
class Job:
    problem: str
    number: int
    system: System
    choice: int
    trees: Trees


@dataclass(frozen=True)
class Outcome:
    validation: float
    test: Values
    seconds: float


def best_scale(scores: np.ndarray, data: RankingData) -> float:
    """Return the factor that maximises the likelihood of the scores; ranking objectives do not determine a scale."""

    def loss(log_factor: float) -> float:
        return -metrics.log_likelihood(np.exp(log_factor) * scores, data.y, offsets=data.offsets)

    return float(np.exp(minimize_scalar(loss, bounds=(-5.0, 5.0), method="bounded").x))


def judge(scores: np.ndarray, data: RankingData, highest_grade: int, scale: float = 1.0) -> Values:
    options: dict[str, Any] = {"offsets": data.offsets, "reduction": "none"}
    return {
        **{f"NDCG@{k}": metrics.ndcg(scores, data.y, k=k, **options) for k in (1, 3, 5, 10)},
        "ERR": metrics.err(scores, data.y, max_grade=highest_grade, **options),
        "log-likelihood": metrics.log_likelihood(scores, data.y, **options),
        "log-likelihood, scaled": metrics.log_likelihood(scale * scores, data.y, **options),
    }


def run(job: Job) -> Outcome:
    fold = PROBLEMS[job.problem](job.number)
    start = time.perf_counter()
    system = job.system
    predict = LIBRARIES[system.library](fold, system.objective, job.trees, **system.choices[job.choice])
    seconds = time.perf_counter() - start
    held_out, scores = (np.asarray(predict(part.X), np.float64) for part in (fold.validation, fold.test))
    values = judge(scores, fold.test, HIGHEST_GRADE[job.problem], best_scale(held_out, fold.validation))
    return Outcome(ndcg10(held_out, fold.validation), values, seconds)


def run_all(jobs: Sequence[Job], title: str) -> list[Outcome]:
    """Run all jobs, with one thread per fit and one process per processor."""
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        return list(track(pool.map(run, jobs), title, len(jobs), console=console))


# Shared by both comparisons


def pooled(parts: Sequence[Values]) -> Values:
    return {metric: np.concatenate([part[metric] for part in parts]) for metric in parts[0]}


def means(values: Values) -> dict[str, float]:
    return {metric: float(np.nanmean(of_lists)) for metric, of_lists in values.items()}


def paired_tests(systems: Mapping[str, Values], metric: str) -> metrics.PairedComparisons:
    """Compare `partition` with every other system over all test lists, with Holm's correction."""
    return metrics.compare({name: values[metric] for name, values in systems.items()}, baseline="partition")


def as_json(tests: metrics.PairedComparisons) -> dict[str, Any]:
    return {
        test.first: {"difference": test.difference, "interval": test.interval, "t_test": test.t_test} for test in tests
    }


def marked(value: float, p_value: float, digits: int) -> str:
    """Format a value, with a star if it differs from `partition` at the 0.05 level."""
    return f"{value:.{digits}f}{'*' if p_value < 0.05 else ' '}"


def comparison(systems: Mapping[str, Values], digits: Mapping[str, int], title: str) -> dict[str, Any]:
    """Print a table of the means, marking those that differ from `partition`; return the results."""
    tests = {metric: paired_tests(systems, metric) for metric in digits}
    p_values = {metric: {test.first: test.t_test for test in found} for metric, found in tests.items()}
    rows = [
        [name, *(marked(means(values)[m], p_values[m].get(name, 1.0), d) for m, d in digits.items())]
        for name, values in systems.items()
    ]
    report(f"{title}; * differs from partition (p < 0.05, Holm)", ["", *digits], rows, console)
    return {
        "means": {name: means(values) for name, values in systems.items()},
        "against partition": {metric: as_json(found) for metric, found in tests.items()},
    }


SIMULATION = [
    System("partition", "partition"),
    *(
        System(f"partition, {', '.join(f'{k}={v}' for k, v in options.items())}", "partition", choices=(options,))
        for options in (
            {"leaves": "lightgbm"},
            {"tier_weights": "gain"},
            {"top": 10},
            {"top": 10, "tier_weights": "gain"},
            {"eval_metric": "log-likelihood"},
        )
    ),
    System("lambdamart", "lambdamart"),
    System("xendcg", "xendcg"),
    System("plrank, 1 order", "plrank"),
    System("plrank, 15 orders", "plrank", choices=({"n_permutations": 15},)),
    System("listmle", "listmle"),
    System("listmle, last tier unordered", "listmle", choices=({"objective_options": {"bottom": "unordered"}},)),
    System("listmle, Efron", "listmle", choices=({"objective_options": {"ties": "efron"}},)),
    # The likelihood of `partition`, but trees without its curvature: separates the effect of likelihood and leaves.
    System("listmle, exact ties", "listmle", choices=({"objective_options": {"ties": "exact"}},)),
    System("lower_bound", "lower_bound"),
]


def simulation() -> dict[str, Any]:
    jobs = [Job("simulation", seed, system, 0, Trees(15, 0.1)) for system in SIMULATION for seed in SEEDS]
    outcomes = run_all(jobs, "simulation")
    by_seed = {s.name: [o.test for j, o in zip(jobs, outcomes, strict=True) if j.system is s] for s in SIMULATION}
    by_seed["the true scores"] = [judge(simulated(seed)[1], simulated(seed)[0].test, 4) for seed in SEEDS]
    digits = {"NDCG@10": 4, "log-likelihood": 3, "log-likelihood, scaled": 3}
    systems = {name: pooled(parts) for name, parts in by_seed.items()}
    title = f"Simulated lists, {len(SEEDS)} seeds x {LISTS[2]} test lists"
    result = comparison(systems, digits, title)
    result["by seed"] = {name: [means(part) for part in parts] for name, parts in by_seed.items()}
    report(
        "Number of seeds in which partition is ahead",
        ["of", *digits],
        [
            [
                name,
                *(
                    str(sum(a[m] > b[m] for a, b in zip(result["by seed"]["partition"], rows, strict=True)))
                    for m in digits
                ),
            ]
            for name, rows in result["by seed"].items()
            if name != "partition"
        ],
        console,
    )
    return result


GRID = [Trees(leaves, rate) for leaves, rate in product((7, 15), (0.05, 0.1))]
MQ2008 = [
    System(
        "partition",
        "partition",
        choices=tuple({"top": top, "tier_weights": weights} for top, weights in product((None, 10), (None, "gain"))),
    ),
    System("plrank", "plrank", choices=tuple({"n_permutations": orders} for orders in (1, 3, 6, 9, 15))),
    *(
        System(name, name)
        for name in (
            "mart", "mart-gain", "c-mart", "cosmart", "c-cosmart", "klmart", "c-klmart", "mcrank", "lambdamart",
            "xendcg", "listmle", "lower_bound", "listnet",
        )
    ),
    *(System(f"LightGBM {name}", name, "lightgbm") for name in ("lambdarank", "rank_xendcg")),
    *(System(f"XGBoost {name}", name, "xgboost") for name in ("rank:ndcg", "rank:pairwise")),
    *(System(f"CatBoost {name}", name, "catboost") for name in ("YetiRank", "QuerySoftMax")),
]  # fmt: skip


Fits = list[tuple[Job, Outcome]]


def best_of_each_fold(fits: Fits) -> Fits:
    """Select the fit that is best on validation in each fold."""
    return [max((fit for fit in fits if fit[0].number == k), key=lambda fit: fit[1].validation) for k in range(5)]


def on_test(fits: Fits) -> Values:
    return pooled([outcome.test for _, outcome in fits])


def letor_mq2008() -> dict[str, Any]:
    """For each system and fold, validation selects options and number of trees; evaluate them on the test part."""
    jobs = [
        Job("mq2008", fold, system, choice, trees)
        for system in MQ2008
        for fold in range(5)
        for choice in range(len(system.choices))
        for trees in GRID
    ]
    fits = list(zip(jobs, run_all(jobs, "MQ2008"), strict=True))
    of_system = {system.name: [fit for fit in fits if fit[0].system is system] for system in MQ2008}
    chosen = {name: best_of_each_fold(found) for name, found in of_system.items()}
    systems = {name: on_test(found) for name, found in chosen.items()}
    digits = dict.fromkeys(("NDCG@1", "NDCG@3", "NDCG@5", "NDCG@10", "ERR"), 4)
    result = comparison(systems, digits, "LETOR MQ2008, five folds, lists without relevant documents skipped")
    console.print("NDCG@10 against partition", paired_tests(systems, "NDCG@10"))
    result["chosen"] = {
        name: [
            {"leaves": job.trees.leaves, "rate": job.trees.rate, **job.system.choices[job.choice]} for job, _ in found
        ]
        for name, found in chosen.items()
    }
    result["validation"] = {name: float(np.mean([o.validation for _, o in found])) for name, found in chosen.items()}
    result["NDCG@10 without a choice"] = {name: means(on_test(found))["NDCG@10"] for name, found in of_system.items()}
    result["NDCG@10 of single options"] = {
        f"{system.name} {options}": means(
            on_test(best_of_each_fold([fit for fit in of_system[system.name] if fit[0].choice == number]))
        )["NDCG@10"]
        for system in MQ2008
        if len(system.choices) > 1
        for number, options in enumerate(system.choices)
    }
    report(
        "NDCG@10 of the options chosen on validation, and mean test NDCG@10 of the whole grid",
        ["", "validation", "test", "whole grid (test)"],
        [
            [name, *(f"{x:.4f}" for x in (result["validation"][name], result["means"][name]["NDCG@10"],
                                          result["NDCG@10 without a choice"][name]))]
            for name in systems
        ],
        console,
    )  # fmt: skip
    report(
        "NDCG@10 of single options, number of trees chosen on validation",
        ["", "NDCG@10"],
        [[name, f"{value:.4f}"] for name, value in result["NDCG@10 of single options"].items()],
        console,
    )
    return result


def main() -> None:
    results = {"simulation": simulation(), "mq2008": letor_mq2008()}
    save(results, "boosted_quality", console)


if __name__ == "__main__":
    main()
