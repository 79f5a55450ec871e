"""Learning from clicks with position bias: recovery of relevance, the cost of biases, the variance of policy gradients.

    python benchmarks/clicks.py

Users examine position p with probability p^-eta and click on what is relevant. The old ranker, whose orders they see,
is related to relevance weakly or strongly; the rest of its score is a feature that users do not care about. Models with
and without `position`, LightGBM's lambdarank with `position` and XGBoost's unbiased lambdarank learn from the same
clicks, and are compared by NDCG@10 on other lists against true grades, paired by list. Trees of all libraries have the
same size.

The second part has simulations in which the correction is not needed, and in which it fails. The third compares
the training time with and without positions, the last one estimators of a policy gradient.

Prints tables, writes results/clicks.json and the figures of docs/clicks.md. Finished fits are kept in
results/clicks.partial.json, so an interrupted run continues from there.
"""

import json
import time
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import torch
import xgboost
from measure import report, save
from rich.console import Console
from rich.progress import track

from plackett import BoostedRanker, LinearRanker, NeuralRanker, PlackettLuce, metrics
from plackett.data import RankingData, make_clicks, make_graded_lists
from plackett.losses import expected_utility_loss

console = Console()
HERE = Path(__file__).parent
FIGURES = HERE.parent / "docs"
PARTIAL = HERE / "results" / "clicks.partial.json"

ETAS, SEEDS = (0.5, 1.0, 2.0), range(10)
LOGGING = {"weak": 0.2, "strong": 0.6}
SHAPES = {"10 items": (1500, 10, None), "40 items, 20 shown": (700, 40, 20)}  # lists, mean length, positions shown
SESSIONS, TEST_LISTS, FEATURES, NOISE = 2, 300, 7, 0.05
ROUNDS, LEAVES, RATE, MIN_ROWS = 50, 4, 0.1, 300
# L2 penalty on leaves, for each library the best of 1, 10 (here 20) and 50 by the mean NDCG of all settings on other
# seeds, 200 to 211. Libraries differ in the size of their curvatures.
PENALTIES = {"plackett": 50.0, "LightGBM": 10.0, "XGBoost": 10.0}

PEERS = ("LightGBM with position", "XGBoost unbiased")

Predict = Callable[[np.ndarray], np.ndarray]


class Logs:
    """Clicks on simulated lists, and other lists of the same kind with their grades."""

    def __init__(self, shape: str, logging: float, eta: float, seed: int, **options: Any) -> None:
        lists, length, shown = SHAPES[shape]
        common: dict[str, Any] = {"mean_length": length, "n_features": FEATURES}
        data, truth = make_graded_lists(lists, **common, random_state=seed)
        self.test: RankingData = make_graded_lists(TEST_LISTS, **common, random_state=1000 + seed)[0]
        relevance = (truth - truth.mean()) / truth.std()
        beside = data.X[:, 6]  # no part of relevance
        scores = 3.0 * (logging * relevance + np.sqrt(1.0 - logging**2) * beside)
        chosen = {"policy": "plackett-luce", "noise": NOISE, "sessions": SESSIONS, "shown": shown} | options
        self.clicks, self.truth = make_clicks(data, scores=scores, eta=eta, **chosen, random_state=seed)
        self.by_position = np.lexsort((self.truth.position, self.clicks.qid))  # XGBoost takes positions from the order

    def ndcg(self, predict: Predict) -> np.ndarray:
        """NDCG@10 of each test list."""
        return metrics.ndcg(predict(self.test.X), self.test.y, k=10, offsets=self.test.offsets, reduction="none")


def tree_model(**options: Any) -> BoostedRanker:
    size: dict[str, Any] = {"n_estimators": ROUNDS, "num_leaves": LEAVES, "learning_rate": RATE}
    size |= {"min_child_samples": MIN_ROWS, "reg_lambda": PENALTIES["plackett"]}
    return BoostedRanker(**size, n_jobs=1, progress=False, random_state=0, **options)


def network(**options: Any) -> NeuralRanker:
    training: dict[str, Any] = {"epochs": 8, "learning_rate": 1e-2, "batch_size": 1500, "scaling": "log1p"}
    return NeuralRanker(hidden_sizes=(32,), **training, progress=False, random_state=0, **options)


MODELS: dict[str, Callable[..., Any]] = {"trees": tree_model, "linear": LinearRanker, "network": network}


def with_lightgbm(logs: Logs) -> Predict:
    rows = logs.by_position
    params = {
        "objective": "lambdarank", "num_leaves": LEAVES, "learning_rate": RATE, "min_data_in_leaf": MIN_ROWS,
        "lambda_l2": PENALTIES["LightGBM"], "num_threads": 1, "verbosity": -1, "deterministic": True,
        "force_row_wise": True,
    }  # fmt: skip
    data = lightgbm.Dataset(
        logs.clicks.X[rows], logs.clicks.y[rows], group=np.diff(logs.clicks.offsets),
        position=logs.truth.position[rows] - 1, params={"verbosity": -1},
    )  # fmt: skip
    return lightgbm.train(params, data, ROUNDS).predict


def with_xgboost(logs: Logs) -> Predict:
    rows = logs.by_position
    params = {
        "objective": "rank:ndcg", "lambdarank_unbiased": True, "max_leaves": LEAVES, "grow_policy": "lossguide",
        "max_depth": 0, "eta": RATE, "nthread": 1, "lambdarank_pair_method": "topk",
        "lambdarank_num_pair_per_sample": 30, "reg_lambda": PENALTIES["XGBoost"],
    }  # fmt: skip
    matrix = xgboost.DMatrix(logs.clicks.X[rows], logs.clicks.y[rows], qid=logs.clicks.qid[rows])
    booster = xgboost.train(params, matrix, ROUNDS)
    return lambda X: booster.predict(xgboost.DMatrix(X))


def measure(logs: Logs, models: dict[str, Callable[..., Any]] | None = None, peers: bool = True) -> dict[str, Any]:
    """NDCG@10 of each test list by system, and the learned biases by model."""
    values, biases = {}, {}
    for name, make in (models or MODELS).items():
        values[name] = logs.ndcg(make().fit(logs.clicks).predict)
        model = make().fit(logs.clicks, position=logs.truth.position)
        values[f"{name} with position"] = logs.ndcg(model.predict)
        biases[name] = model.position_bias_.bias.tolist()
    if peers:
        values |= {name: logs.ndcg(fit(logs)) for name, fit in zip(PEERS, (with_lightgbm, with_xgboost), strict=True)}
    return {"ndcg": {name: found.round(6).tolist() for name, found in values.items()}, "biases": biases}


def compared(runs: list[dict[str, Any]], first: str, second: str) -> dict[str, float]:
    """The mean difference over the lists of all seeds, and the p value of the paired test."""
    ours, theirs = (np.concatenate([np.array(run["ndcg"][name], float) for run in runs]) for name in (first, second))
    found = metrics.compare(ours, theirs)
    return {"difference": found.difference, "p": found.t_test}


def recovery() -> dict[str, Any]:
    """All settings; finished runs come from the partial file."""
    done: dict[str, Any] = json.loads(PARTIAL.read_text()) if PARTIAL.exists() else {}
    settings = list(product(SHAPES, LOGGING, ETAS, SEEDS))
    for shape, logging, eta, seed in track(settings, "Fitting", console=console):
        key = f"{shape} | {logging} | {eta} | {seed}"
        if key not in done:
            done[key] = measure(Logs(shape, LOGGING[logging], eta, seed))
            PARTIAL.write_text(json.dumps(done))
    results = []
    for shape, logging, eta in product(SHAPES, LOGGING, ETAS):
        runs = [done[f"{shape} | {logging} | {eta} | {seed}"] for seed in SEEDS]
        means = {name: float(np.nanmean([run["ndcg"][name] for run in runs])) for name in runs[0]["ndcg"]}
        tests = {name: compared(runs, f"{name} with position", name) for name in MODELS}
        for name, peer in product(MODELS, PEERS):
            tests[f"{name} against {peer}"] = compared(runs, f"{name} with position", peer)
        width = min(len(bias) for run in runs for bias in run["biases"].values())
        biases = {
            name: np.array([run["biases"][name][: min(width, 10)] for run in runs]).round(3).tolist() for name in MODELS
        }
        results.append(
            {"shape": shape, "logging": logging, "eta": eta, "ndcg": means, "tests": tests, "biases": biases}
        )
    return {"settings": results}


def show_recovery(results: dict[str, Any]) -> None:
    settings = results["settings"]
    names = list(settings[0]["ndcg"])
    rows = [
        [f"{one['shape']}, {one['logging']}, eta {one['eta']:g}", *(f"{one['ndcg'][name]:.3f}" for name in names)]
        for one in settings
    ]
    report("NDCG@10 against true grades, mean of ten seeds", ["setting", *names], rows, console)
    for suffix in ("", *(f" against {peer}" for peer in PEERS)):
        rows = [
            [
                f"{one['shape']}, {one['logging']}, eta {one['eta']:g}",
                *("{difference:+.4f} (p {p:.2g})".format(**one["tests"][name + suffix]) for name in MODELS),
            ]
            for one in settings
        ]
        report(f"With position{suffix or ' - without'}, paired by list", ["setting", *MODELS], rows, console)


# Where the correction is not needed, where it fails, and what else there is


def special_cases() -> dict[str, Any]:
    """Trees and linear models on clicks of other kinds, with and without `position`."""
    shape = "10 items"
    cases = {
        "full examination (eta 0)": Logs(shape, 0.2, 0.0, 0),
        "random order, eta 1": Logs(shape, 0.0, 1.0, 0, temperature=1e6),
        "old ranker alone decides (sorted), strong": Logs(shape, 0.6, 1.0, 0, policy="sorted"),
        "old ranker is relevance itself (sorted)": Logs(shape, 1.0, 1.0, 0, policy="sorted"),
        "trust bias 0.5, eta 1": Logs(shape, 0.2, 1.0, 0, trust=0.5),
    }
    models = {name: MODELS[name] for name in ("trees", "linear")}
    found = {}
    for name, logs in cases.items():
        run = measure(logs, models, peers=False)
        means = {system: float(np.nanmean(values)) for system, values in run["ndcg"].items()}
        found[name] = {"ndcg": means, "biases": run["biases"]}
    return found


def inverse_propensities() -> dict[str, Any]:
    """Position bias in the likelihood against inverse propensity weights, known and learned, of linear models."""
    found: dict[str, list[float]] = {}
    for seed in SEEDS:
        logs = Logs("10 items", 0.2, 1.0, seed)
        clicks, position = logs.clicks, logs.truth.position
        exact = LinearRanker().fit(clicks, position=position)
        plain = LinearRanker("lower_bound")
        known = LinearRanker("lower_bound").fit(clicks, item_weight=1.0 / logs.truth.examination)
        learned = 1.0 / exact.position_bias_.propensity(position)
        systems = {
            "exact likelihood, no correction": LinearRanker().fit(clicks),
            "exact likelihood, position bias": exact,
            "lower bound, no correction": plain.fit(clicks),
            "lower bound, true inverse propensities": known,
            "lower bound, learned inverse propensities": LinearRanker("lower_bound").fit(clicks, item_weight=learned),
        }
        for name, model in systems.items():
            found.setdefault(name, []).append(float(np.nanmean(logs.ndcg(model.predict))))
    return {name: {"mean": float(np.mean(values)), "seeds": values} for name, values in found.items()}


# Cost and variance


def cost(turns: int = 4) -> dict[str, float]:
    """The ratio of training times with and without `position`; sides take turns."""
    data, truth = make_graded_lists(500, mean_length=60, n_features=50, random_state=0)
    clicks, shown = make_clicks(data, scores=truth, policy="plackett-luce", sessions=2, random_state=0)
    sides: dict[str, Any] = {"without": None, "with": shown.position}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns + 1):
        for name, position in sides.items():
            start = time.perf_counter()
            BoostedRanker(n_estimators=20, n_jobs=1, progress=False, random_state=0).fit(clicks, position=position)
            if turn:  # the first one loads compiled code
                seconds[name].append(time.perf_counter() - start)
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    return {"rows": len(clicks.y), **medians, "ratio": medians["with"] / medians["without"]}


def gradient_noise(items: int = 100, top: int = 10, samples: int = 100, repeats: int = 200) -> dict[str, Any]:
    """Variance times seconds of estimates of a policy's gradient: the smaller, the sooner an accuracy is reached."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(items, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.randint(0, 5, (items,), generator=generator) * (torch.rand(items, generator=generator) < 0.2)

    def estimate(method: str) -> torch.Tensor:
        options: dict[str, Any] = {"top": top, "samples": samples, "method": method, "generator": generator}
        return torch.autograd.grad(expected_utility_loss(scores, labels, **options), scores)[0]

    def with_baseline() -> torch.Tensor:
        """REINFORCE with the mean of the other samples as its baseline."""
        policy = PlackettLuce(scores)
        orders = policy.sample_top(top, (samples,), generator=generator)
        gain = (2.0 ** labels[orders] - 1.0) / torch.log2(torch.arange(2.0, top + 2.0, dtype=torch.float64))
        reward = gain.sum(-1)
        advantage = (reward - reward.mean()) * samples / (samples - 1)
        return torch.autograd.grad(-(advantage * policy.log_prob(orders)).mean(), scores)[0]

    estimators: dict[str, Callable[[], torch.Tensor]] = {
        "PL-Rank": lambda: estimate("pl-rank"),
        "REINFORCE": lambda: estimate("reinforce"),
        "REINFORCE with a baseline": with_baseline,
    }
    draws: dict[str, list[torch.Tensor]] = {name: [draw()] for name, draw in estimators.items()}  # loads compiled code
    seconds: dict[str, list[float]] = {name: [] for name in estimators}
    for _ in range(repeats):
        for name, draw in estimators.items():  # in turns
            start = time.perf_counter()
            draws[name].append(draw())
            seconds[name].append(time.perf_counter() - start)
    found: dict[str, Any] = {}
    for name in estimators:
        variance, median = float(torch.stack(draws[name]).var(0).sum()), float(np.median(seconds[name]))
        found[name] = {"variance": variance, "seconds": median, "variance_seconds": variance * median}
    ours = found["PL-Rank"]["variance_seconds"]
    for name in found:
        found[name]["times_ours"] = found[name]["variance_seconds"] / ours
    return {"items": items, "top": top, "samples": samples, "repeats": repeats, "estimators": found}


# Figures


def new_figure(columns: int) -> tuple[Any, list[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.3 * columns, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, columns, sharey=True, squeeze=False)[0].tolist()
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(axis="y", alpha=0.25)
    return figure, axes


COLOURS = {"trees": "#0072B2", "linear": "#D55E00", "network": "#009E73"}


def bias_figure(results: dict[str, Any]) -> None:
    """Learned biases, one line per seed, against -eta log(position)."""
    chosen = [one for one in results["settings"] if one["shape"] == "10 items" and one["logging"] == "weak"]
    figure, axes = new_figure(len(chosen))
    for one, axis in zip(chosen, axes, strict=True):
        places = np.arange(1, len(next(iter(one["biases"].values()))[0]) + 1)
        for name, colour in COLOURS.items():
            for number, bias in enumerate(one["biases"][name]):
                axis.plot(places, bias, color=colour, alpha=0.55, linewidth=1.2, label=name if number == 0 else None)
        axis.plot(places, -one["eta"] * np.log(places), "k--", linewidth=1.4, label="truth")
        axis.set_title(f"eta = {one['eta']:g}")
        axis.set_xlabel("position")
    axes[0].set_ylabel("bias, relative to the first position")
    axes[0].legend(frameon=False)
    figure.savefig(FIGURES / "clicks_bias.png", dpi=130)


def recovery_figure(results: dict[str, Any]) -> None:
    """NDCG@10 by eta, with and without `position`."""
    panels = list(product(SHAPES, LOGGING))
    figure, axes = new_figure(len(panels))
    for (shape, logging), axis in zip(panels, axes, strict=True):
        chosen = [one for one in results["settings"] if (one["shape"], one["logging"]) == (shape, logging)]
        etas = [one["eta"] for one in chosen]
        for name, colour in COLOURS.items():
            for suffix, style in ((" with position", "o-"), ("", "o:")):
                values = [one["ndcg"][name + suffix] for one in chosen]
                axis.plot(etas, values, style, color=colour, markersize=4, label=name + suffix)
        for peer, marker in zip(PEERS, ("s--", "^--"), strict=True):
            values = [one["ndcg"][peer] for one in chosen]
            axis.plot(etas, values, marker, color="0.45", markersize=4, linewidth=1.0, label=peer)
        axis.set_title(f"{shape}\nold ranker {logging}ly related", fontsize="medium")
        axis.set_xlabel("eta")
    axes[0].set_ylabel("NDCG@10 against true grades")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(FIGURES / "clicks_recovery.png", dpi=130)


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results: dict[str, Any] = {"cost": cost(), "gradients": gradient_noise()}
    report(
        f"Training of trees on {results['cost']['rows']:,} rows, seconds",
        ["without position", "with position", "ratio"],
        [[f"{results['cost']['without']:.2f}", f"{results['cost']['with']:.2f}", f"{results['cost']['ratio']:.3f}"]],
        console,
    )
    report(
        "Estimates of the gradient of a policy, lists of 100, top 10, 100 samples",
        ["estimator", "variance", "milliseconds", "variance x time, relative to PL-Rank"],
        [
            [name, f"{one['variance']:.3g}", f"{1000 * one['seconds']:.2f}", f"{one['times_ours']:.1f}"]
            for name, one in results["gradients"]["estimators"].items()
        ],
        console,
    )
    results |= {"special cases": special_cases(), "inverse propensities": inverse_propensities()}
    report(
        "NDCG@10 in special cases",
        ["case", *next(iter(results["special cases"].values()))["ndcg"]],
        [
            [name, *(f"{value:.3f}" for value in case["ndcg"].values())]
            for name, case in results["special cases"].items()
        ],
        console,
    )
    report(
        "Linear models, eta 1, old ranker weakly related: mean of ten seeds",
        ["system", "NDCG@10"],
        [[name, f"{one['mean']:.4f}"] for name, one in results["inverse propensities"].items()],
        console,
    )
    results |= recovery()
    show_recovery(results)
    bias_figure(results)
    recovery_figure(results)
    save(results, "clicks", console)
    PARTIAL.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
