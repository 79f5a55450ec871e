"""plackett train and plackett predict"""

import inspect
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from plackett.cli.app import app, console
from plackett.cli.data import FormatName, read_data
from plackett.cli.outputs import FIGURE, FILE, MODEL, check_apart
from plackett.cli.reports import ReportOption, command_line

_METRICS = {
    "ranking": ["ndcg@1", "ndcg@5", "ndcg@10", "err@10"],
    "labels": ["p@1", "p@3", "p@5", "psp@1", "psp@3", "psp@5"],
}


def _parameter(text: str) -> tuple[str, Any]:
    """name=value, the value as JSON, or as the text it is."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise typer.BadParameter(f"expected name=value, got {text!r}", param_hint="--param")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


@app.command()
def train(
    data: Annotated[Path, typer.Argument(help="Training data: LETOR, XMC or Parquet, compressed or not.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write the model to.", callback=MODEL)],
    valid: Annotated[
        Path | None, typer.Option(help="Validation data: training stops when it no longer improves.")
    ] = None,
    test: Annotated[Path | None, typer.Option(help="Test data, scored at the end.")] = None,
    model: Annotated[
        str, typer.Option(help="The kind of model: boosted, neural, linear, coordinate_ascent, extreme.")
    ] = "boosted",
    objective: Annotated[str | None, typer.Option(help="What is learned; default: the exact likelihood.")] = None,
    metric: Annotated[
        str | None, typer.Option(help="What validation measures; default: ndcg@10, or p@1 of labels.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="A parameter of the model, name=value. Repeat it.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Where to keep the state, to resume from if the training is cut short.")
    ] = None,
    label_shards: Annotated[
        int | None,
        typer.Option(min=1, help="Under torchrun: how many processes share the labels of an extreme model."),
    ] = None,
    features: Annotated[
        int | None,
        typer.Option(min=1, help="LETOR: the number of features; default: the greatest index in the training data."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="A picture of the training, epoch by epoch, or round by round of boosted trees.", callback=FIGURE
        ),
    ] = None,
    report: ReportOption = None,
    format_name: Annotated[FormatName | None, typer.Option("--format", help="Default: found from the file.")] = None,
) -> None:
    """Train a model and write it to a folder."""
    from plackett.estimators import MODELS, make_model
    from plackett.report import training_page, write_page
    from plackett.report.terminal import shown

    check_apart("output", output=output, plot=plot, report=report, checkpoint=checkpoint)
    chosen = dict(_parameter(text) for text in param or [])
    if objective is not None:
        chosen["objective"] = objective
    if valid is not None and model in MODELS:
        chosen = MODELS[model].defaults_with_validation | chosen
    if metric is not None:
        chosen["eval_metric"] = metric
    if label_shards is not None:
        _check_shards(model)
        chosen["label_shards"] = label_shards
    estimator = make_model(model, {"random_state": seed} | chosen)
    if plot is not None and not {"epochs", "n_estimators"} & set(estimator.get_params()):
        raise typer.BadParameter(f"models of kind {model} have no epochs or rounds to plot", param_hint="--plot")
    if checkpoint is not None and "checkpoint" not in inspect.signature(estimator.fit).parameters:
        raise typer.BadParameter(f"models of kind {model} keep no state to resume from", param_hint="--checkpoint")
    files = {name: path for name, path in (("train", data), ("valid", valid), ("test", test)) if path is not None}
    parts = {}
    for name, path in files.items():  # the training data first, whose width the others have
        parts[name] = read_data(path, format_name, width=features)
        features = parts["train"].X.shape[1] if hasattr(parts["train"], "X") else None
    options = {} if checkpoint is None else {"checkpoint": checkpoint}
    with _processes(model) as is_first:
        estimator.fit(parts["train"], eval_set=parts.get("valid"), **options)
        if not is_first and getattr(estimator, "label_shards", 1) == 1:
            return
        # Those that hold shards take part in writing and measuring; the first one tells of it.
        console.quiet = not is_first
        estimator.save(output)
        _show_fit(estimator, parts["train"], plot if is_first else None)
        results = _evaluate(model, estimator, parts, metric)
    if not is_first:
        return
    if report is not None:
        write_page(training_page(estimator, parts, results, files=files, command=command_line()), report)
    best = getattr(estimator, "best_iteration_", None) or getattr(estimator, "best_epoch_", None)
    unit = "epochs" if hasattr(estimator, "history_") else "rounds"
    written = f"Model written to {shown(str(output))}"
    console.print(written + (f"; best after {best} {unit}" if best else ""), soft_wrap=True)


def _show_fit(estimator: Any, data: Any, plot: Path | None) -> None:
    """What the model tells of its fit: epochs, rounds, coefficients."""
    from plackett.report import history_table, plot_history, plot_rounds, summary_table

    if hasattr(estimator, "history_"):
        console.print(history_table(estimator.history_))
        if plot is not None:
            plot_history(estimator.history_, plot)
    elif plot is not None:
        plot_rounds(estimator.evals_result_ or {"train": _measured_rounds(estimator, data)}, plot)
    if hasattr(estimator, "summary"):
        console.print(summary_table(estimator.summary()))


def _measured_rounds(estimator: Any, data: Any) -> dict[str, list[float]]:
    """The metrics of boosted trees on their training data after each round, for there are no others."""
    from plackett.estimators.parameters import metric_names
    from plackett.metrics import get_metric

    metrics = {name: get_metric(name) for name in metric_names("eval_metric", estimator.eval_metric)}
    found: dict[str, list[float]] = {name: [] for name in metrics}
    for scores in estimator.staged_predict(data.X):
        for name, metric in metrics.items():
            found[name].append(float(metric(scores, data.y, offsets=data.offsets)))
    return found


def _evaluate(model: str, estimator: Any, parts: Mapping[str, Any], metric: str | None) -> dict[str, Any]:
    """The usual metrics of every part, shown and returned."""
    from plackett.evaluation import evaluate
    from plackett.metrics import inverse_propensity
    from plackett.report import result_table
    from plackett.report.terminal import shown

    has_labels = hasattr(estimator, "predict_top")
    inverse = inverse_propensity(parts["train"].Y) if has_labels else None
    names = _METRICS["labels" if has_labels else "ranking"]
    if has_labels:  # no more places than labels
        names = [name for name in names if int(name.split("@")[1]) <= estimator.n_labels_]
    if metric is not None and not has_labels:
        names = list(dict.fromkeys([metric, *names]))
    results = {}
    for name, part in parts.items():
        console.print(f"[bold]{name}[/]: {shown(repr(part))}")
        scores = _top_labels(estimator, part)[0] if has_labels else estimator.predict_data(part)
        results[name] = evaluate(part, {model: scores}, names, inverse_propensity=inverse)
        console.print(result_table(results[name], 0.95))
    return results


def _check_shards(kind: str) -> None:
    if kind != "extreme":
        raise typer.BadParameter(f"it goes with the model extreme, got {kind}", param_hint="--label-shards")


@contextmanager
def _processes(kind: str) -> Iterator[bool]:
    """Joins the processes that torchrun launched, if it did; whether this one is the first of them, or alone."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield True
        return
    if kind not in ("neural", "extreme"):
        raise ValueError(f"torchrun goes with the models neural and extreme, got {kind}")
    from plackett.training import joined

    with joined() as workers:
        yield workers.is_first


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    data: Annotated[Path, typer.Argument(help="The data to score.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to write the scores; - for standard output.", callback=FILE)
    ],
    top: Annotated[
        int | None,
        typer.Option(
            min=1, help="Write the best of each list or row instead: `label:score` for labels, else a TREC run."
        ),
    ] = None,
    label_shards: Annotated[
        int | None,
        typer.Option(min=1, help="Under torchrun: how many processes share the labels of an extreme model."),
    ] = None,
    format_name: Annotated[FormatName | None, typer.Option("--format", help="Default: found from the file.")] = None,
) -> None:
    """Score data with a trained model, a number a line."""
    from plackett.data import dump_scores
    from plackett.data.files import is_standard_output, open_target
    from plackett.estimators import ExtremeClassifier, load_model
    from plackett.estimators.saved import read_description
    from plackett.report.terminal import shown

    if label_shards is None:
        estimator = load_model(model)
        width = getattr(estimator, "n_features_in_", None)
        found = _predicted(estimator, read_data(data, format_name, width=width), top)
    else:
        name = read_description(model)["class"]
        _check_shards("extreme" if name == ExtremeClassifier.__name__ else name)
        with _processes("extreme") as is_first:
            estimator = ExtremeClassifier.load(model, label_shards=label_shards)
            found = _predicted(estimator, read_data(data, format_name), top)
        if not is_first:
            return
    if isinstance(found, list):
        with open_target(str(output)) as file:
            file.write("".join(f"{line}\n" for line in found).encode())
    else:
        dump_scores(found, str(output))
    if not is_standard_output(output):
        done = "lines" if isinstance(found, list) else "scores"
        console.print(f"{len(found):,} {done} written to {shown(str(output))}", soft_wrap=True)


def _predicted(estimator: Any, part: Any, top: int | None) -> Any:
    """Lines of the best of each list or row, or the scores of all rows."""
    from plackett.data import MultilabelData, RankingData

    has_labels = hasattr(estimator, "predict_top")
    wanted = MultilabelData if has_labels else RankingData
    if not isinstance(part, wanted):
        name = type(estimator).__name__
        raise ValueError(f"data must be {wanted.__name__} to be scored by {name}, got {type(part).__name__}")
    if has_labels:
        return _label_lines(estimator, part, top)
    return estimator.predict_data(part) if top is None else _trec_lines(estimator, part, top)


def _top_labels(estimator: Any, data: Any, top: int | None = None) -> Any:
    """The best labels of each row and their scores; five of them, if there are so many, unless `top` says."""
    return estimator.predict_top(data.X, min(5, estimator.n_labels_) if top is None else top)


def _label_lines(estimator: Any, data: Any, top: int | None) -> list[str]:
    """label:score of the best labels of each row, best first."""
    labels, scores = _top_labels(estimator, data, top)
    rows = zip(labels.tolist(), scores.tolist(), strict=True)
    return [" ".join(f"{label}:{score:.6g}" for label, score in zip(*row, strict=True)) for row in rows]


def _trec_lines(estimator: Any, data: Any, top: int) -> list[str]:
    """query Q0 document rank score plackett; documents by their identifiers if all are words, else by their rows."""
    import numpy as np

    scores, group = estimator.predict_data(data), np.diff(data.offsets)
    ranks = estimator.rank(data.X, group=group)
    order = np.lexsort((ranks, np.repeat(np.arange(len(data)), group)))
    # A blank or the end of a line in a name would make other fields, or lines, of the run.
    queries = [str(query) for query in data.qid]
    odd = next((query for query in queries if not _is_word(query)), None)
    if odd is not None:
        raise ValueError(f"the lists must have printable names without blanks to be written as a TREC run, got {odd!r}")
    ids = [] if data.ids is None else [str(name) for name in data.ids]
    if not ids or not all(map(_is_word, ids)):
        ids = [str(row) for row in range(len(scores))]
    return [f"{queries[i]} Q0 {ids[i]} {ranks[i]} {scores[i]:.9g} plackett" for i in order if ranks[i] <= top]


def _is_word(text: str) -> bool:
    return text != "" and text.isprintable() and " " not in text
