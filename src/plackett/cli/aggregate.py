"""plackett aggregate"""

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from plackett.cli.app import app, console
from plackett.cli.comparison_options import (
    ColumnOptions,
    has_comparisons,
    load_votes,
    parse_anchor,
    parse_features,
    parse_scale,
)
from plackett.cli.data import FormatName, LayoutOption, csv_options, read_data
from plackett.cli.outputs import FIGURE, MODEL, TABLE, check_outputs_differ
from plackett.cli.reports import ReportOption, command_line

_RANKINGS, _COMPARISONS, _MODEL, _OUTPUT = "Rankings", "Comparisons", "Model", "Output"


@app.command()
def aggregate(
    ballots: Annotated[
        Path, typer.Argument(help="PrefLib ballots, CSV of rankings, or a table of comparisons; - for standard input.")
    ],
    edges: Annotated[
        bool,
        typer.Option("--edges", help="The file contains lines winner,loser[,weight].", rich_help_panel=_COMPARISONS),
    ] = False,
    method: Annotated[
        str | None,
        typer.Option(
            help="For a file with the columns list, better, worse: fit the known preferences of each list as a graph, "
            "or broken into tiers or pairs. Default: graph.",
            rich_help_panel=_COMPARISONS,
        ),
    ] = None,
    merge_cycles: Annotated[
        bool,
        typer.Option(
            "--merge-cycles",
            help="Tie the items of a cycle of such preferences, which is an error otherwise.",
            rich_help_panel=_COMPARISONS,
        ),
    ] = False,
    left: Annotated[
        str | None,
        typer.Option(help="Column of the left side. Default: detected by name.", rich_help_panel=_COMPARISONS),
    ] = None,
    right: Annotated[str | None, typer.Option(help="Column of the right side.", rich_help_panel=_COMPARISONS)] = None,
    winner: Annotated[
        str | None,
        typer.Option(
            help="Column of the outcome, or those of both scores, such as home_goals,away_goals.",
            rich_help_panel=_COMPARISONS,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Column of the voter or prompt, for standard errors.", rich_help_panel=_COMPARISONS),
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Column of the category: one board for each.", rich_help_panel=_COMPARISONS)
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="Column of the time: numbers or dates.", rich_help_panel=_COMPARISONS)
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="Covariates, such as length=length_a:length_b,home (a column, or those of both sides).",
            rich_help_panel=_COMPARISONS,
        ),
    ] = None,
    half_life: Annotated[
        float | None,
        typer.Option(help="Age at which a comparison counts half, in days for dates.", rich_help_panel=_COMPARISONS),
    ] = None,
    window: Annotated[
        float | None, typer.Option(help="Largest age of a comparison.", rich_help_panel=_COMPARISONS)
    ] = None,
    voters: Annotated[
        str | None,
        typer.Option(help="reliability: estimate how reliable each --cluster is.", rich_help_panel=_COMPARISONS),
    ] = None,
    groups: Annotated[
        str, typer.Option(help="Boards of categories: separate or shared.", rich_help_panel=_COMPARISONS)
    ] = "separate",
    items: Annotated[
        str | None, typer.Option(help='CSV: columns of the ranking, such as "L*".', rich_help_panel=_RANKINGS)
    ] = None,
    layout: LayoutOption = None,
    weight: Annotated[
        str | None, typer.Option(help="Column with the number of times a row was seen.", rich_help_panel=_RANKINGS)
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            help="CSV: delimiter. Default: comma, semicolon or tab, as in the header.", rich_help_panel=_RANKINGS
        ),
    ] = None,
    tie: Annotated[
        str | None,
        typer.Option("--tie", help='CSV: separator of tied items. Default: "=".', rich_help_panel=_RANKINGS),
    ] = None,
    unranked: Annotated[
        str,
        typer.Option(help="Treatment of items that a ballot does not rank: ignore or last.", rich_help_panel=_RANKINGS),
    ] = "ignore",
    ties: Annotated[
        str | None,
        typer.Option(
            help="Meaning of a tie: unknown, davidson, rao-kupper or half. Required if pairs tie.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    max_tie: Annotated[
        int | None, typer.Option(help="Size of the largest dead heat in lists, for davidson.", rich_help_panel=_MODEL)
    ] = None,
    covariance: Annotated[
        str | None,
        typer.Option(
            help="Standard errors: model, sandwich, cluster or bootstrap. Default: cluster with --cluster, else model.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    prior: Annotated[
        float,
        typer.Option(
            help="Pseudo-wins and pseudo-losses of every item against a virtual one, such as 0.5.",
            rich_help_panel=_MODEL,
        ),
    ] = 0.0,
    ridge: Annotated[float, typer.Option(help="Penalty on squared scores.", rich_help_panel=_MODEL)] = 0.0,
    feature_ridge: Annotated[
        float, typer.Option(help="Penalty on squared effects of covariates.", rich_help_panel=_MODEL)
    ] = 0.0,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Fail if an item has no finite worth. Default: rank it above or below all others.",
            rich_help_panel=_MODEL,
        ),
    ] = False,
    confidence: Annotated[
        float, typer.Option(help="Confidence level of the intervals.", rich_help_panel=_OUTPUT)
    ] = 0.95,
    seed: Annotated[int, typer.Option(help="Random seed for simulated ranks.", rich_help_panel=_OUTPUT)] = 0,
    scale: Annotated[
        str | None,
        typer.Option(help="Show ratings: elo, or scale:base such as 400:10.", rich_help_panel=_OUTPUT),
    ] = None,
    anchor: Annotated[
        str | None, typer.Option(help="Rating of one item, such as gpt-4=1000.", rich_help_panel=_OUTPUT)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write the table to a .csv or .json file.", callback=TABLE, rich_help_panel=_OUTPUT
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Plot worths with intervals to a .png or .svg file.", callback=FIGURE, rich_help_panel=_OUTPUT
        ),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Folder to write the model to.", callback=MODEL, rich_help_panel=_OUTPUT)
    ] = None,
    report: ReportOption = None,
    format_name: Annotated[
        FormatName | None, typer.Option("--format", help="File format. Default: detected from the file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_OUTPUT)] = False,
) -> None:
    """Estimate worths of items from rankings or comparisons, with intervals for worths and ranks."""
    from plackett.aggregation.worth_figure import worth_figure
    from plackett.data import Comparisons
    from plackett.estimators import RankAggregator
    from plackett.report import Scale, aggregation_page, board_page, worth_table, write_page
    from plackett.report.terminal import terminal_text

    check_outputs_differ("model", output=output, plot=plot, model=model, report=report)
    numbers = parse_scale(scale)
    fixed = parse_anchor(anchor)
    columns = ColumnOptions(left, right, winner, weight, cluster, by, time, parse_features(features), delimiter)
    csv = {"items": items, "layout": layout, "weight": weight, "delimiter": delimiter, "tie": tie}
    is_plain = format_name is None and not edges and not columns.are_named and not any(csv.values())
    if method is not None or (is_plain and _holds_graphs(ballots)):
        data, note = _read_graphs(ballots, method or "graph", is_plain, merge_cycles), ""
    elif merge_cycles:
        raise typer.BadParameter("--merge-cycles is for a file with the columns list, better, worse")
    else:
        data, note = _read(ballots, edges, format_name, csv, columns)
    if note:
        Console(stderr=True, soft_wrap=True).print(terminal_text(note))
    aggregator = RankAggregator(
        ties=ties, max_tie=max_tie, covariance=covariance, voters=voters, groups=groups, half_life=half_life,
        window=window, prior=prior, ridge=ridge, feature_ridge=feature_ridge, unranked=unranked, random_state=seed,
        on_infinite="error" if strict else "drop",
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        aggregator.fit(data)
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        Console(stderr=True, soft_wrap=True).print(f"[bold yellow]Warning:[/] {terminal_text(text)}")
    summary = aggregator.summary(confidence=confidence, random_state=seed)
    if scale is not None or fixed is not None:
        summary = summary.with_ratings(aggregator.ratings(*numbers, fixed, confidence=confidence))
    # Write files before printing: the reader of a pipe may close it at any time.
    if output is not None:
        summary.save(output)
    if model is not None:
        aggregator.save(model)
    if report is not None:
        origin: dict[str, Any] = {"data": data, "files": {"ballots": ballots}, "command": command_line()}
        if isinstance(data, Comparisons):
            page = board_page(aggregator, scale=Scale(*numbers, fixed), confidence=confidence, seed=seed, **origin)
        else:
            page = aggregation_page(aggregator, summary, **origin)
        write_page(page, report)
    if plot is not None:
        worth_figure(summary, plot)
    if as_json:
        print(json.dumps(summary.as_dict(), indent=1))
        return
    console.print(worth_table(summary, str(ballots)))
    for name, board in getattr(aggregator, "boards_", {}).items():
        part = board.summary(confidence=confidence, random_state=seed)
        if scale is not None or fixed is not None:
            known = fixed if fixed and fixed[0] in board.items_ else None
            part = part.with_ratings(board.ratings(*numbers, known, confidence=confidence))
        console.print(worth_table(part, f"{by}: {name}"))


def _holds_graphs(source: Path) -> bool:
    """Whether the first line of a file names the columns of graphs."""
    from plackett.data.files import read_lines
    from plackett.data.preference_graphs import graph_columns

    if not source.is_file():
        return False
    try:
        first = next(iter(read_lines(str(source))), "")
    except (OSError, ValueError):  # not text: its own reader says what is wrong
        return False
    heading = [cell.strip().lower() for cell in first.split(",")]
    return {"list", "better", "worse"} <= set(heading) and graph_columns(heading) is not None


def _read_graphs(source: Path, method: str, is_plain: bool, merge_cycles: bool) -> Any:
    from plackett.data import load_preference_graphs
    from plackett.preferences import ballots_from_graphs

    if method not in ("graph", "tiers", "pairs"):
        raise typer.BadParameter(f"must be graph, tiers or pairs, got {method!r}", param_hint="--method")
    if not is_plain:
        raise typer.BadParameter("--method cannot be combined with --edges, --format or column options")
    graphs = load_preference_graphs(str(source))
    if method != "pairs" and merge_cycles:
        graphs = graphs.merge_cycles()
    elif method != "pairs":
        graphs.check_acyclic("--merge-cycles ties the items of a cycle")
    return graphs if method == "graph" else ballots_from_graphs(graphs, method=method)


def _read(
    source: Path, edges: bool, format_name: FormatName | None, options: dict[str, str | None], columns: ColumnOptions
) -> tuple[Any, str]:
    """The data, and how its columns were understood."""
    from plackett.aggregation import load_edges
    from plackett.data import Ballots

    if edges:
        if format_name is not None or any(value is not None for value in options.values()) or columns.are_named:
            raise typer.BadParameter("--edges cannot be combined with --format or column options")
        return load_edges(str(source)), ""
    rankings = format_name is not None or any(options[name] is not None for name in ("items", "layout", "tie"))
    if columns.are_named or (not rankings and has_comparisons(source, columns.delimiter)):
        return load_votes(source, columns)
    format_name, chosen = csv_options(format_name, options)
    data = read_data(source, format_name, **chosen)
    if not isinstance(data, Ballots):
        raise typer.BadParameter(f"expected rankings, got {data!r}", param_hint="BALLOTS")
    return data, ""
