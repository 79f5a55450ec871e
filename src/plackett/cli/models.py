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
from plackett.cli.outputs import FIGURE, FILE, MODEL, check_outputs_differ
from plackett.cli.reports import ReportOption, command_line

_METRICS = {
    "ranking": ["ndcg@1", "ndcg@5", "ndcg@10", "err@10"],
    "labels": ["p@1", "p@3", "p@5", "psp@1", "psp@3", "psp@5"],
}


def _parameter(text: str) -> tuple[str, Any]:
    """Parse name=value, with the value as JSON or else as plain text."""
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
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write the model to.", callback=MODEL)],
    valid: Annotated[
        Path | None, typer.Option(help="Validation data; training stops when the metric on it no longer improves.")
    ] = None,
    test: Annotated[Path | None, typer.Option(help="Test data, evaluated at the end.")] = None,
    model: Annotated[
        str, typer.Option(help="Kind of model: boosted, neural, linear, coordinate_ascent or extreme.")
    ] = "boosted",
    objective: Annotated[str | None, typer.Option(help="Training objective. Default: the exact likelihood.")] = None,
    metric: Annotated[str | None, typer.Option(help="Validation metric. Default: ndcg@10, or p@1 for labels.")] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="Model parameter, name=value. Can be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Path for the training state; an interrupted training resumes from it.")
    ] = None,
    label_shards: Annotated[
        int | None,
        typer.Option(min=1, help="With torchrun: number of processes that share the labels of an extreme model."),
    ] = None,
    features: Annotated[
        int | None,
        typer.Option(min=1, help="LETOR: number of features. Default: the greatest index in the training data."),
    ] = None,
    label_names: Annotated[
        Path | None, typer.Option(help="Text file with the names of the labels of an extreme model, one per line.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Plot the training by epoch, or by round for boosted trees, to a .png or .svg file.", callback=FIGURE
        ),
    ] = None,
    report: ReportOption = None,
    format_name: Annotated[
        FormatName | None, typer.Option("--format", help="File format. Default: detected from the file.")
    ] = None,
) -> None:
    """Train a model and save it to a folder."""
    from plackett.estimators import MODELS, make_model
    from plackett.report import training_page, write_page
    from plackett.report.terminal import terminal_text

    check_outputs_differ("output", output=output, plot=plot, report=report, checkpoint=checkpoint)
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
        raise typer.BadParameter(
            f"cannot plot the training of a {model} model: it has no epochs or rounds", param_hint="--plot"
        )
    if checkpoint is not None and "checkpoint" not in inspect.signature(estimator.fit).parameters:
        raise typer.BadParameter(
            f"cannot checkpoint a {model} model: it has no training state to resume from", param_hint="--checkpoint"
        )
    files = {name: path for name, path in (("train", data), ("valid", valid), ("test", test)) if path is not None}
    parts = {}
    for name, path in files.items():  # training data first: it sets the number of features
        parts[name] = read_data(path, format_name, width=features)
        features = parts["train"].X.shape[1] if hasattr(parts["train"], "X") else None
    options: dict[str, Any] = {} if checkpoint is None else {"checkpoint": checkpoint}
    if label_names is not None:
        options["label_names"] = _read_names(label_names, model)
    with _processes(model) as is_first:
        estimator.fit(parts["train"], eval_set=parts.get("valid"), **options)
        if not is_first and getattr(estimator, "label_shards", 1) == 1:
            return
        # Processes with shards take part in saving and evaluating; only the first one prints.
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
    written = f"Model written to {terminal_text(str(output))}"
    console.print(written + (f"; best after {best} {unit}" if best else ""), soft_wrap=True)


def _show_fit(estimator: Any, data: Any, plot: Path | None) -> None:
    """Print and plot the fit: epochs, rounds, coefficients."""
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
    """Metrics of boosted trees on the training data after each round, used if there is no validation data."""
    from plackett.arguments import metric_names
    from plackett.metrics import get_metric

    metrics = {name: get_metric(name) for name in metric_names("eval_metric", estimator.eval_metric)}
    found: dict[str, list[float]] = {name: [] for name in metrics}
    for scores in estimator.staged_predict(data.X):
        for name, metric in metrics.items():
            found[name].append(float(metric(scores, data.y, offsets=data.offsets)))
    return found


def _evaluate(model: str, estimator: Any, parts: Mapping[str, Any], metric: str | None) -> dict[str, Any]:
    """Print and return the usual metrics of every part."""
    from plackett.evaluation import evaluate, without_err
    from plackett.metrics import inverse_propensity
    from plackett.report import result_table
    from plackett.report.terminal import terminal_text

    has_labels = hasattr(estimator, "predict_top")
    inverse = inverse_propensity(parts["train"].Y) if has_labels else None
    names = without_err(parts.values(), _METRICS["labels" if has_labels else "ranking"])
    if has_labels:  # cutoffs must not exceed the number of labels
        names = [name for name in names if int(name.split("@")[1]) <= estimator.n_labels_]
    if metric is not None and not has_labels:
        names = list(dict.fromkeys([metric, *names]))
    results = {}
    for name, part in parts.items():
        console.print(f"[bold]{name}[/]: {terminal_text(repr(part))}")
        scores = _top_labels(estimator, part)[0] if has_labels else estimator.predict_data(part)
        results[name] = evaluate(part, {model: scores}, names, inverse_propensity=inverse)
        console.print(result_table(results[name], 0.95))
    return results


def _read_names(path: Path, kind: str) -> list[str]:
    """The names of labels, one per line."""
    if kind != "extreme":
        raise typer.BadParameter(f"the model must be extreme, got {kind}", param_hint="--label-names")
    names = path.read_text(encoding="utf-8").splitlines()
    odd = next((number for number, name in enumerate(names, 1) if not name.strip() or not name.isprintable()), None)
    if odd is not None:
        raise ValueError(f"{path}, line {odd}: a name must be printable and not empty, got {names[odd - 1]!r:.80}")
    return names


def _check_shards(kind: str) -> None:
    if kind != "extreme":
        raise typer.BadParameter(f"the model must be extreme, got {kind}", param_hint="--label-shards")


@contextmanager
def _processes(kind: str) -> Iterator[bool]:
    """Join the processes launched by torchrun, if any. Yields whether this is the first or only process."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield True
        return
    if kind not in ("neural", "extreme"):
        raise ValueError(f"the model must be neural or extreme to run under torchrun, got {kind}")
    from plackett.distributed import join_process_group

    with join_process_group() as workers:
        yield workers.is_first


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a saved model.")],
    data: Annotated[Path, typer.Argument(help="Data to score.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write the scores to; - for standard output.", callback=FILE)
    ],
    top: Annotated[
        int | None,
        typer.Option(
            min=1, help="Write only the best of each list or row: `label:score` for labels, otherwise a TREC run."
        ),
    ] = None,
    label_shards: Annotated[
        int | None,
        typer.Option(min=1, help="With torchrun: number of processes that share the labels of an extreme model."),
    ] = None,
    format_name: Annotated[
        FormatName | None, typer.Option("--format", help="File format. Default: detected from the file.")
    ] = None,
) -> None:
    """Score data with a trained model, one number per line."""
    from plackett.data import dump_scores
    from plackett.data.files import is_standard_output, open_target
    from plackett.estimators import ExtremeClassifier, load_model
    from plackett.estimators.persistence import read_description
    from plackett.report.terminal import terminal_text

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
        console.print(f"{len(found):,} {done} written to {terminal_text(str(output))}", soft_wrap=True)


def _predicted(estimator: Any, part: Any, top: int | None) -> Any:
    """Lines with the best of each list or row, or the scores of all rows."""
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
    """The best labels of each row and their scores: `top` of them, by default five or all if there are fewer."""
    return estimator.predict_top(data.X, min(5, estimator.n_labels_) if top is None else top)


def _label_lines(estimator: Any, data: Any, top: int | None) -> list[str]:
    """Lines with label:score of the best labels of each row, best first. Names, which may hold blanks, end at a tab."""
    labels, scores = _top_labels(estimator, data, top)
    gap = "\t" if estimator.classes_.dtype == object else " "
    rows = zip(estimator.classes_[labels].tolist(), scores.tolist(), strict=True)
    return [gap.join(f"{label}:{score:.6g}" for label, score in zip(*row, strict=True)) for row in rows]


def _trec_lines(estimator: Any, data: Any, top: int) -> list[str]:
    """Lines `query Q0 document rank score plackett`; a document is its id if all ids are words, else its row."""
    import numpy as np

    from plackett.estimators.ranker import ranks_of
    from plackett.lists import Lists

    scores = estimator.predict_data(data)
    ranks = ranks_of(scores, Lists(data.offsets))
    order = np.lexsort((ranks, np.repeat(np.arange(len(data)), np.diff(data.offsets))))
    # A blank or a line break in a name would add fields or lines to the run.
    queries = [str(query) for query in data.qid]
    odd = next((query for query in queries if not _is_word(query)), None)
    if odd is not None:
        raise ValueError(f"qid must be printable without blanks to be written as a TREC run, got {odd!r}")
    ids = [] if data.ids is None else [str(name) for name in data.ids]
    if not ids or not all(map(_is_word, ids)):
        ids = [str(row) for row in range(len(scores))]
    return [f"{queries[i]} Q0 {ids[i]} {ranks[i]} {scores[i]:.9g} plackett" for i in order if ranks[i] <= top]


def _is_word(text: str) -> bool:
    return text != "" and text.isprintable() and " " not in text
