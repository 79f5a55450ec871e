"""plackett train and plackett predict"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from plackett.cli.app import app, console
from plackett.cli.data import FormatName, read_data


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
    data: Annotated[Path, typer.Argument(help="Training data: LETOR or Parquet, compressed or not.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write the model to.")],
    valid: Annotated[
        Path | None, typer.Option(help="Validation data: training stops when it no longer improves.")
    ] = None,
    test: Annotated[Path | None, typer.Option(help="Test data, scored at the end.")] = None,
    model: Annotated[str, typer.Option(help="The kind of model.")] = "boosted",
    objective: Annotated[str | None, typer.Option(help="What is learned; default: the exact likelihood.")] = None,
    metric: Annotated[str, typer.Option(help="What validation measures.")] = "ndcg@10",
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="A parameter of the model, name=value. Repeat it.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    checkpoint: Annotated[Path | None, typer.Option(help="A file to resume from if the training is cut short.")] = None,
    format_name: Annotated[FormatName | None, typer.Option("--format", help="Default: found from the file.")] = None,
) -> None:
    """Train a ranker and write it to a folder."""
    from plackett.estimators import make_model
    from plackett.evaluation import evaluate
    from plackett.report import result_table

    chosen = dict(_parameter(text) for text in param or [])
    if objective is not None:
        chosen["objective"] = objective
    if valid is not None:
        chosen = {"n_estimators": 1000, "early_stopping_rounds": 50} | chosen
    ranker = make_model(model, {"eval_metric": metric, "random_state": seed} | chosen)
    parts = {"train": read_data(data, format_name)}
    for name, path in (("valid", valid), ("test", test)):
        if path is not None:
            parts[name] = read_data(path, format_name)
    options = {} if checkpoint is None else {"checkpoint": checkpoint}
    ranker.fit(parts["train"], eval_set=parts.get("valid"), **options)
    ranker.save(output)
    for name, part in parts.items():
        console.print(f"[bold]{name}[/]: {part!r}")
        results = evaluate(part, {model: ranker.predict(part.X)}, [metric, "ndcg@1", "ndcg@5", "ndcg@10", "err@10"])
        console.print(result_table(list({r.metric: r for r in results}.values()), 0.95))
    rounds = getattr(ranker, "best_iteration_", None)
    console.print(f"Model written to {output}" + (f"; best after {rounds} rounds" if rounds else ""), soft_wrap=True)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    data: Annotated[Path, typer.Argument(help="The data to score.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the scores; - for standard output.")],
    format_name: Annotated[FormatName | None, typer.Option("--format", help="Default: found from the file.")] = None,
) -> None:
    """Score data with a trained model, a number a line."""
    from plackett.data import dump_scores
    from plackett.estimators import load_model

    ranker = load_model(model)
    scores = ranker.predict(read_data(data, format_name).X)
    dump_scores(scores, str(output))
    if str(output) != "-":
        console.print(f"{len(scores):,} scores written to {output}", soft_wrap=True)
