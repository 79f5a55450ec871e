"""plackett aggregate"""

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from plackett.cli.app import app, console
from plackett.cli.data import FormatName, LayoutOption, csv_options, read_data
from plackett.cli.outputs import FIGURE, MODEL, TABLE, check_apart
from plackett.cli.reports import ReportOption, command_line


@app.command()
def aggregate(
    ballots: Annotated[Path, typer.Argument(help="PrefLib ballots or CSV of rankings; - for standard input.")],
    edges: Annotated[bool, typer.Option("--edges", help="The file holds lines winner,loser[,weight].")] = False,
    items: Annotated[str | None, typer.Option(help='CSV: the columns of the ranking, such as "L*".')] = None,
    layout: LayoutOption = None,
    unranked: Annotated[str, typer.Option(help="Items a ballot leaves out: ignore, or last.")] = "ignore",
    prior: Annotated[
        float, typer.Option(help="Wins and losses of every item against one of the prior's own, such as 0.5.")
    ] = 0.0,
    ridge: Annotated[float, typer.Option(help="Penalty on squared scores.")] = 0.0,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at items without a finite worth; default: leave them out.")
    ] = False,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Of the simulation of ranks.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the table to a .csv or .json file.", callback=TABLE)
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw worths with intervals to a .png or .svg file.", callback=FIGURE)
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Write the model to this folder.", callback=MODEL)] = None,
    report: ReportOption = None,
    format_name: Annotated[FormatName | None, typer.Option("--format", help="Default: found from the file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Estimate the worths of items from rankings: a table with intervals for worths and ranks."""
    from plackett.aggregation.figure import worth_figure
    from plackett.estimators import RankAggregator
    from plackett.report import aggregation_page, worth_table, write_page
    from plackett.report.terminal import shown

    check_apart("model", output=output, plot=plot, model=model, report=report)
    data = _read(ballots, edges, format_name, {"items": items, "layout": layout})
    aggregator = RankAggregator(
        prior=prior, ridge=ridge, unranked=unranked, on_infinite="error" if strict else "drop"
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        aggregator.fit(data)
    for warning in caught:
        Console(stderr=True, soft_wrap=True).print(f"[bold yellow]Warning:[/] {shown(str(warning.message))}")
    summary = aggregator.summary(confidence=confidence, random_state=seed)
    # Files first: who reads what is printed may stop reading at any time.
    if output is not None:
        summary.save(output)
    if model is not None:
        aggregator.save(model)
    if report is not None:
        page = aggregation_page(aggregator, summary, data=data, files={"ballots": ballots}, command=command_line())
        write_page(page, report)
    if plot is not None:
        worth_figure(summary, plot)
    if as_json:
        print(json.dumps(summary.as_dict(), indent=1))
    else:
        console.print(worth_table(summary, str(ballots)))


def _read(source: Path, edges: bool, format_name: FormatName | None, options: dict[str, str | None]) -> Any:
    from plackett.aggregation import load_edges
    from plackett.data import Ballots

    if edges:
        if format_name is not None or any(value is not None for value in options.values()):
            raise typer.BadParameter("--edges goes with none of --format, --items and --layout")
        return load_edges(str(source))
    format_name, chosen = csv_options(format_name, options)
    data = read_data(source, format_name, **chosen)
    if not isinstance(data, Ballots):
        raise typer.BadParameter(f"expected rankings, got {data!r}", param_hint="BALLOTS")
    return data
