"""plackett info and plackett evaluate"""

import json
import math
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from plackett.cli.app import app, console
from plackett.cli.outputs import FILE, check_outputs_differ
from plackett.cli.reports import ReportOption, command_line


class FormatName(StrEnum):
    """The formats of `plackett.data.FORMATS`; a test keeps the two in sync."""

    letor = "letor"
    lightgbm = "lightgbm"
    xmc = "xmc"
    preflib = "preflib"
    csv = "csv"
    parquet = "parquet"


LayoutOption = Annotated[
    str | None, typer.Option(help="CSV: ranks, places or approvals (1 approved, 0 not). Default: ranks or places.")
]


def csv_options(
    format_name: FormatName | None, options: dict[str, str | None]
) -> tuple[FormatName | None, dict[str, Any]]:
    """The format and the CSV options that were given; any such option implies CSV."""
    chosen = {name: value for name, value in options.items() if value is not None}
    if chosen and format_name is None:
        format_name = FormatName.csv
    if chosen and format_name is not FormatName.csv:
        given = " and ".join(f"--{name}" for name in chosen)
        raise typer.BadParameter(f"{given} can only be used with CSV files")
    return format_name, chosen


def read_data(source: Path, format_name: FormatName | None = None, *, width: int | None = None, **options: Any) -> Any:
    """Read a file; `width` is the number of features if the format does not state it."""
    from plackett.data.formats import read_any

    return read_any(str(source), None if format_name is None else format_name.value, width=width, **options)[1]


def _without_nan(value: Any) -> Any:
    """Replace NaN, which JSON does not have, with null."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@app.command()
def info(
    file: Annotated[Path, typer.Argument(help="Data file, compressed or not; - for standard input.")],
    format_name: Annotated[
        FormatName | None, typer.Option("--format", help="File format. Default: detected from the file.")
    ] = None,
    items: Annotated[str | None, typer.Option(help='CSV: columns of the ranking, such as "L*".')] = None,
    features: Annotated[str | None, typer.Option(help='CSV: columns of the features, such as "A*".')] = None,
    layout: LayoutOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Summarise a data file: format, lists, items, features, grades, tiers, ties."""
    from plackett.data import FORMATS, describe
    from plackett.data.formats import read_any
    from plackett.report import description_table

    format_name, chosen = csv_options(format_name, {"items": items, "features": features, "layout": layout})
    found_name, data = read_any(str(file), None if format_name is None else format_name.value, **chosen)
    description = describe(data)
    title = FORMATS[found_name].title
    if as_json:
        found = {"file": str(file), "format": title, **description.facts, "histograms": description.histograms}
        print(json.dumps(_without_nan(found), indent=1, allow_nan=False))
    else:
        console.print(description_table(description, f"{file}: {title}"))


@app.command()
def evaluate(
    labels: Annotated[Path, typer.Argument(help="Data that was scored: LETOR, Parquet or XMC.")],
    scores: Annotated[
        list[Path],
        typer.Argument(help="Scores, one number per line (label:score pairs for XMC). Several files are compared."),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            help="Metric such as ndcg@10, err, map, mrr, p@5, recall@20, tau-b, log-likelihood; psp@3 for XMC. "
            "Can be repeated.",
        ),
    ] = None,
    train: Annotated[
        Path | None, typer.Option(help="XMC: training data, needed for the propensities of psp and psndcg.")
    ] = None,
    propensity: Annotated[str, typer.Option(help="XMC: propensity model, named after its data set.")] = "default",
    ties: Annotated[
        str | None, typer.Option(help="Treatment of equal scores: average (exact expectation), stable or random.")
    ] = None,
    gain: Annotated[str | None, typer.Option(help="Gain of NDCG: exp2 or linear.")] = None,
    empty: Annotated[str | None, typer.Option(help="Value for lists without a relevant item: skip, 0 or 1.")] = None,
    confidence: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    per_list: Annotated[
        Path | None, typer.Option(help="CSV file to write the values of every list to.", callback=FILE)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    report: ReportOption = None,
) -> None:
    """Evaluate predictions: metrics with confidence intervals, and paired tests between systems."""
    from plackett.data import MultilabelData, load_scores
    from plackett.evaluation import compare_systems, dump_per_list, evaluate
    from plackett.report import comparison_table, evaluation_page, result_table, write_page

    check_outputs_differ("", **{"per-list": per_list, "report": report})
    data = read_data(labels, None)
    options: dict[str, Any] = {"ties": ties, "gain": gain, "empty": int(empty) if empty in ("0", "1") else empty}
    options = {name: value for name, value in options.items() if value is not None}
    systems = {name: load_scores(str(path), data) for name, path in _names(scores).items()}
    inverse = None
    if train is not None:
        from plackett.metrics import inverse_propensity

        training = read_data(train, None)
        if not isinstance(training, MultilabelData):
            raise typer.BadParameter("expected XMC data to compute propensities from", param_hint="--train")
        inverse = inverse_propensity(training.Y, preset=propensity)
    results = evaluate(data, systems, metric, confidence=confidence, inverse_propensity=inverse, **options)
    comparisons = compare_systems(results, confidence=confidence) if len(systems) > 1 else {}
    if per_list is not None:
        dump_per_list(results, per_list)
    if report is not None:
        files = {"labels": labels, **_names(scores)}
        page = evaluation_page(data, results, comparisons, confidence=confidence, files=files, command=command_line())
        write_page(page, report)
    if as_json:
        found = [
            {"metric": r.metric, "system": r.system, "value": r.value, "interval": r.interval, "lists": r.lists}
            for r in results
        ]
        tests = [{"metric": m, **asdict(pair)} for m, pairs in comparisons.items() for pair in pairs]
        print(json.dumps(_without_nan({"results": found, "comparisons": tests}), indent=1, allow_nan=False))
        return
    console.print(result_table(results, confidence))
    if comparisons:
        console.print(comparison_table(comparisons))


def _names(paths: list[Path]) -> dict[str, Path]:
    """Names of systems: the file names, or the full paths if two file names are equal."""
    if len(set(paths)) != len(paths):
        raise typer.BadParameter("expected different files, got the same file twice", param_hint="SCORES")
    short = [path.name for path in paths]
    return dict(zip(short if len(set(short)) == len(short) else map(str, paths), paths, strict=True))
