import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from processes import run_alone

from plackett.data import dump_letor, dump_xmc, make_multilabel, make_tiered_lists
from plackett.experiments import tie_costs


def test_all_methods_are_timed_relative_to_the_exact_one() -> None:
    data = make_tiered_lists(5, random_state=0)
    timings = tie_costs.measure("five", data, repeats=2)
    assert [timing.method for timing in timings] == list(tie_costs.METHODS)
    assert timings[0].ratio == 1.0
    for timing in timings:
        assert timing.items == len(data.y)
        assert timing.seconds > 0.0
        assert np.isclose(timing.ratio, timing.seconds / timings[0].seconds)
    with pytest.raises(ValueError, match="data must contain at least one item, got none in nothing"):
        tie_costs.measure("nothing", data.select([]))


def test_simulated_lists_match_their_names() -> None:
    for (name, data), (count, tiers) in zip(tie_costs.simulated().items(), tie_costs.SHAPES.values(), strict=True):
        assert len(data) == count
        assert len(data.y) == count * sum(tiers)
        assert f"{count:,} lists" in name


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_peak_memory_of_a_block() -> None:
    """An earlier, higher peak does not hide the block's own, and short peaks are not missed.

    This must hold for most of twenty trials in a separate process: the system may take memory away at any time.
    """
    code = """
    import json, numpy as np
    from plackett.experiments.timing import PeakMemory
    np.ones(2 * 10**7)
    added = []
    for _ in range(20):
        with PeakMemory() as peak:
            np.ones(8 * 10**6)  # more than the allocator keeps for reuse
        added.append(peak.added)
    print(json.dumps(sorted(added)))
    """
    added = run_alone(code)
    assert 60e6 < added[3] <= added[-4] < 70e6


def test_command_line(tmp_path: Path, plackett: Callable[..., tuple[int, str, str]]) -> None:
    path = tmp_path / "lists.txt"
    dump_letor(make_tiered_lists(5, random_state=0), path)
    code, shown, _ = plackett("bench", path, "--repeats", 1)
    assert code == 0
    for text in ("Breslow", "Efron", "relative to exact", "Median of 1 runs"):
        assert text in shown
    printed = json.loads(plackett("bench", path, "--repeats", 1, "--json")[1])
    assert {timing["method"] for timing in printed["timings"]} == set(tie_costs.METHODS)
    dump_xmc(make_multilabel(20, 20, 20, labels_per_row=2, features_per_row=2, random_state=0), path)
    code, _, error = plackett("bench", path)
    assert code == 2
    assert "must contain lists of items with grades, got" in " ".join(error.replace("│", "").split())
