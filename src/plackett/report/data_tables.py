"""The description of a data set as tables with text histograms."""

from rich.console import Group, RenderableType
from rich.table import Table

from plackett.data.description import Bars, Description
from plackett.report.terminal import terminal_text

_WIDTH = 32
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def text_bar(share: float, width: int = _WIDTH) -> str:
    """A bar in steps of an eighth of a character; any positive share is visible."""
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def _histogram(title: str, bars: Bars) -> Table:
    table = Table(title=title, title_justify="left", box=None, show_header=False, padding=(0, 1))
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column(min_width=_WIDTH)
    total, most = sum(count for _, count in bars), max((count for _, count in bars), default=0)
    for name, count in bars:
        table.add_row(terminal_text(name), f"{count:,}", f"{count / max(1, total):.1%}", text_bar(count / max(1, most)))
    return table


def description_table(description: Description, title: str) -> RenderableType:
    """The facts of a data set, with histograms."""
    facts = Table(title=terminal_text(title), title_justify="left", show_header=False, box=None, padding=(0, 1))
    facts.add_column()
    facts.add_column(justify="left")
    for name, value in description.facts.items():
        facts.add_row(
            name,
            terminal_text(value) if isinstance(value, str) else f"{value:,g}" if value < 1e6 else f"{int(value):,}",
        )
    parts: list[RenderableType] = [facts]
    for name, bars in description.histograms.items():
        parts += ["", _histogram(name, bars)]
    return Group(*parts)
