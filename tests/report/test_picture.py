"""Images of the plots of a page, checked through matplotlib's own objects."""

from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from plackett.report.page import Axis, Histogram, ItemPlot, LinePlot, Section, Series, Table, draw_picture

LINES = LinePlot(
    [
        Series("one", [1.0, None, 100.0], [1, 10, 100], [0.5, None, 50.0], [2.0, None, 200.0]),
        Series("two", [3.0, 30.0, 300.0], [1, 10, 100]),
    ],
    Axis("items", log=True, reference=(20.0, "the middle")),
    Axis("time", "s", log=True),
    "how long it takes",
    error_bars=True,
)
ITEMS = ItemPlot(["a", "b"], [Series("worth", [0.2, 0.8], low=[0.1, 0.6], high=[0.3, 0.9])], Axis("worth"))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Collects the figures that are saved."""
    saved: list[Figure] = []
    save = Figure.savefig

    def kept(self: Figure, *args: Any, **options: Any) -> None:
        saved.append(self)
        save(self, *args, **options)

    monkeypatch.setattr(Figure, "savefig", kept)
    return saved


def test_every_plot_gets_its_own_axes(figures: list[Figure]) -> None:
    sections = [Section("first", [LINES, Table(["n"], [[1]])]), Section("second", [ITEMS])]
    picture = draw_picture(sections)
    assert picture is not None
    assert picture.startswith(b"\x89PNG")
    lines, items = figures[0].axes
    assert (lines.get_xscale(), lines.get_yscale()) == ("log", "log")
    assert (lines.get_xlabel(), lines.get_ylabel(), lines.get_title()) == ("items", "time (s)", "how long it takes")
    legend = lines.get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} == {"one", "two", "the middle"}
    assert np.array_equal(lines.containers[0].lines[0].get_ydata(), [1.0, np.nan, 100.0], equal_nan=True)
    assert [label.get_text() for label in items.get_yticklabels()] == ["a", "b"]
    assert items.yaxis_inverted()  # the first item is on top
    assert items.get_legend() is None


def test_equal_plots_give_equal_files() -> None:
    assert draw_picture([Section("", [LINES])]) == draw_picture([Section("", [LINES])])


def test_no_plots_give_no_image() -> None:
    assert draw_picture([Section("", [Table(["n"], [[1]]), Histogram([1.0, 2.0], Axis("x"))])]) is None


@pytest.mark.parametrize("bars", [False, True])
def test_item_series_have_different_styles(figures: list[Figure], bars: bool) -> None:
    plot = ItemPlot(["a"], [Series("x", [1.0]), Series("y", [2.0])], Axis("n"), bars=bars)
    draw_picture([Section("", [plot])])
    legend = figures[0].axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["x", "y"]


def test_a_series_looks_the_same_in_all_plots(figures: list[Figure]) -> None:
    first = LinePlot([Series("x", [1.0, 2.0]), Series("y", [2.0, 1.0])], Axis("n"), Axis("m"))
    second = LinePlot([Series("y", [2.0, 1.0])], Axis("n"), Axis("m"))
    draw_picture([Section("", [first, second])])
    both, alone = figures[0].axes
    assert both.lines[0].get_color() != both.lines[1].get_color() == alone.lines[0].get_color()
