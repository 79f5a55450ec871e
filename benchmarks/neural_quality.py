"""How well neural rankers rank: every loss with the network of Jagerman et al. (ListPL), curves and paired tests.

    python benchmarks/neural_quality.py

Three hidden layers of 80 ReLU units, Adam, five seeds, on LETOR MQ2008 (five folds) and the sample of MSLR-WEB10K (its
training half, of which a quarter of the queries validates, and its test half). The data are looked for under
$PLACKETT_DATA or ../shared/data. The weights of the best epoch by NDCG@10 on validation are judged on test. Finished
runs are kept in .cache, so that a second run does only what is missing. Prints tables, writes
results/neural_quality.json, draws results/neural_quality.png.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from measure import report, save
from rich.console import Console
from rich.progress import track

from plackett import NeuralRanker, metrics
from plackett.data import RankingData, letor_folds, load_letor, train_validation_split
from plackett.data.splits import Fold

console = Console()
FOLDER = Path(__file__).parent / "results"
KEPT = Path(__file__).parents[1] / ".cache" / "neural_quality.json"
LOSSES = (
    "partition", "listnet", "listmle", "listpl", "lower_bound", "attrank", "ranknet", "ranksvm", "lambdarank",
    "approx_ndcg",
)  # fmt: skip
DRAWN = {"partition": "#0072B2", "listpl": "#D55E00", "listmle": "#009E73", "listnet": "#CC79A7"}
SEEDS = 5
EPOCHS = {"MQ2008": 30, "MSLR sample": 30}
PARTS = ("train", "validation", "test")


def folder() -> Path:
    return Path(os.environ.get("PLACKETT_DATA", Path(__file__).parents[2] / "shared" / "data"))


def folds_of(name: str) -> list[Fold]:
    if name == "MQ2008":
        return list(letor_folds([load_letor(folder() / "mq2008" / f"S{i}.txt.xz") for i in range(1, 6)]))
    train, test = (load_letor(folder() / "mslr-sample" / f"{part}.txt.xz") for part in ("train", "test"))
    return [Fold(*train_validation_split(train, validation=0.25, random_state=0), test)]


def per_query(model: NeuralRanker, data: RankingData) -> list[float | None]:
    values = metrics.ndcg(model.predict_data(data), data.y, k=10, offsets=data.offsets, reduction="none")
    return [None if np.isnan(value) else round(float(value), 6) for value in values]


def run(name: str, fold: Fold, loss: str, seed: int) -> dict[str, Any]:
    model = NeuralRanker(
        loss, epochs=EPOCHS[name], early_stopping_rounds=EPOCHS[name], learning_rate=1e-3, random_state=seed
    ).fit(fold.train, eval_set=[fold.validation, fold.train, fold.test])
    columns = {"validation": "valid_0", "train": "valid_1", "test": "valid_2"}
    return {
        "curves": {part: [round(v, 5) for v in model.history_[f"{columns[part]} ndcg@10"]] for part in PARTS},
        "best epoch": model.best_epoch_,
        "test": per_query(model, fold.test),
    }


def run_all() -> dict[str, Any]:
    done = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    keys = [
        (name, number, loss, seed)
        for name in EPOCHS
        for loss in LOSSES
        for number in range(len(folds_of(name)))
        for seed in range(SEEDS)
    ]
    folds = {name: folds_of(name) for name in EPOCHS}
    KEPT.parent.mkdir(exist_ok=True)
    saved = time.monotonic()
    for name, number, loss, seed in track(keys, "Training", console=console):
        key = f"{name}/{loss}/{number}/{seed}"
        if key not in done:
            done[key] = run(name, folds[name][number], loss, seed)
            if time.monotonic() - saved > 60:
                KEPT.write_text(json.dumps(done) + "\n")
                saved = time.monotonic()
    KEPT.write_text(json.dumps(done) + "\n")
    return done


def test_values(done: dict[str, Any], name: str, loss: str) -> np.ndarray:
    """NDCG@10 of every test query, the mean over seeds; folds one after the other."""
    numbers = sorted({int(key.split("/")[2]) for key in done if key.startswith(f"{name}/{loss}/")})
    return np.concatenate(
        [
            np.mean([np.array(done[f"{name}/{loss}/{n}/{s}"]["test"], np.float64) for s in range(SEEDS)], axis=0)
            for n in numbers
        ]
    )


def show(done: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in EPOCHS:
        values = {loss: test_values(done, name, loss) for loss in LOSSES}
        against = {pair.first: pair for pair in metrics.compare(values, baseline="partition", correction="holm")}
        rows = []
        for loss in sorted(LOSSES, key=lambda x: -np.nanmean(values[x])):
            runs = [done[key] for key in done if key.startswith(f"{name}/{loss}/")]
            by_seed = [
                np.nanmean(np.concatenate([np.array(r["test"], np.float64) for r in runs[s::SEEDS]]))
                for s in range(SEEDS)
            ]
            test = against.get(loss)
            rows.append(
                [
                    loss,
                    f"{np.nanmean(values[loss]):.4f}",
                    f"{np.std(by_seed, ddof=1):.4f}",
                    "" if test is None else f"{test.difference:+.4f}",
                    "" if test is None else f"{test.t_test:.3f}",
                    f"{np.mean([r['best epoch'] for r in runs]):.1f}",
                ]
            )
        columns = ["loss", "NDCG@10", "s.d. of seeds", "minus partition", "p (t-test, Holm)", "best epoch"]
        report(f"{name}, test queries, {SEEDS} seeds", columns, rows, console)
        found[name] = [dict(zip(columns, row, strict=True)) for row in rows]
    return found


def draw(done: dict[str, Any]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 6.0), layout="constrained")
    axes = figure.subplots(len(EPOCHS), len(PARTS), squeeze=False)
    for row, name in enumerate(EPOCHS):
        for column, part in enumerate(PARTS):
            axis = axes[row, column]
            for loss, colour in DRAWN.items():
                curves = np.array(
                    [done[key]["curves"][part] for key in done if key.startswith(f"{name}/{loss}/")], np.float64
                )
                epochs, mean, spread = np.arange(1, curves.shape[1] + 1), curves.mean(0), curves.std(0, ddof=1)
                axis.plot(epochs, mean, color=colour, label=loss)
                axis.fill_between(epochs, mean - spread, mean + spread, color=colour, alpha=0.12, linewidth=0)
            axis.set_title(f"{name}, {part}")
            axis.grid(alpha=0.3)
            if row == len(EPOCHS) - 1:
                axis.set_xlabel("epoch")
            if column == 0:
                axis.set_ylabel("NDCG@10")
    axes[0, 0].legend(fontsize="small")
    figure.savefig(FOLDER / "neural_quality.png", dpi=130)
    console.print(
        "Curves in benchmarks/results/neural_quality.png; bands are one standard deviation of folds and seeds"
    )


if __name__ == "__main__":
    results = run_all()
    tables = show(results)
    draw(results)
    save(tables, "neural_quality", console)
