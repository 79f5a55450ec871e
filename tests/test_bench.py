import json
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import run_alone
from typer.testing import CliRunner

from plackett import bench
from plackett.cli.app import app
from plackett.data import dump_letor, dump_xmc, make_multilabel, make_tiered_lists


def test_all_methods_are_timed_against_the_exact_one() -> None:
    data = make_tiered_lists(5, random_state=0)
    timings = bench.measure("five", data, repeats=2)
    assert [timing.method for timing in timings] == list(bench.METHODS)
    assert timings[0].ratio == 1.0
    for timing in timings:
        assert timing.items == len(data.y)
        assert timing.seconds > 0.0
        assert np.isclose(timing.ratio, timing.seconds / timings[0].seconds)
    with pytest.raises(ValueError, match="data must hold at least one item, got none in nothing"):
        bench.measure("nothing", data.select([]))


def test_simulated_lists_have_the_shapes_they_say() -> None:
    for (name, data), (count, tiers) in zip(bench.simulated().items(), bench.SHAPES.values(), strict=True):
        assert len(data) == count
        assert len(data.y) == count * sum(tiers)
        assert f"{count:,} lists" in name


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_the_highest_memory_of_a_block() -> None:
    """What was higher before does not hide it, and nothing is missed that is soon gone.

    Most of twenty times, in a process of its own: the system may take memory away from a block at any time.
    """
    code = """
    import json, numpy as np
    from plackett.timing import PeakMemory
    np.ones(2 * 10**7)
    added = []
    for _ in range(20):
        with PeakMemory() as peak:
            np.ones(8 * 10**6)  # more than the allocator keeps for later
        added.append(peak.added)
    print(json.dumps(sorted(added)))
    """
    added = run_alone(code)
    assert 60e6 < added[3] <= added[-4] < 70e6


def test_command_line(tmp_path: Path) -> None:
    path = tmp_path / "lists.txt"
    dump_letor(make_tiered_lists(5, random_state=0), path)
    shown = CliRunner().invoke(app, ["bench", str(path), "--repeats", "1"])
    assert shown.exit_code == 0
    for text in ("Breslow", "Efron", "of exact", "Median of 1 turns"):
        assert text in shown.output
    told = json.loads(CliRunner().invoke(app, ["bench", str(path), "--repeats", "1", "--json"]).stdout)
    assert {timing["method"] for timing in told["timings"]} == set(bench.METHODS)
    dump_xmc(make_multilabel(20, 20, 20, labels_per_row=2, features_per_row=2, random_state=0), path)
    wrong = CliRunner().invoke(app, ["bench", str(path)])
    assert wrong.exit_code == 2
    assert "must hold lists of items with grades, got MultilabelData" in " ".join(wrong.output.replace("│", "").split())
