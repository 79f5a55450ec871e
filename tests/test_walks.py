"""docs/architecture.md names the modules that data pass through, in four walks; this counts them again."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import plackett
from plackett.data import load_letor, load_xmc

SOURCE = f"{Path(plackett.__file__).parent}/"
PAGE = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text()
FOUNDATION = ("arguments", "lists", "progress", "threads")
MOST_MODULES = 16  # of a walk that a newcomer can follow


def _letor(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{rng.integers(3)} qid:{row // 5} 1:{rng.random():.3f} 2:{rng.random():.3f}\n" for row in range(100)]
    path = folder / "rows.txt"
    path.write_text("".join(rows))
    data = load_letor(path)
    plackett.BoostedRanker(n_estimators=2, min_child_samples=2).fit(data).predict(data.X)


def _xmc(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{row % 6},{6 + row % 5} 0:{rng.random():.3f} {1 + row % 19}:1\n" for row in range(40)]
    path = folder / "rows.txt"
    path.write_text("40 20 12\n" + "".join(rows))
    data = load_xmc(path)
    plackett.ExtremeClassifier(epochs=1, hidden_sizes=(4,), ensemble=1, progress=False).fit(data.X, data.Y)


def _ballots(_: Path) -> None:
    plackett.RankAggregator().fit([["a", "b", "c"], ["b", "a", "c"], ["c", "a", "b"]])


def _loss(_: Path) -> None:
    import torch

    from plackett.losses import partition_loss

    scores = torch.zeros(2, 3, requires_grad=True)
    partition_loss(scores, torch.tensor([[1, 1, 0], [2, 1, 0]])).backward()


WALKS: dict[str, Callable[[Path], None]] = {
    "A LETOR file to predictions of trees": _letor,
    "An XMC file to a fitted classifier": _xmc,
    "Ballots to worths": _ballots,
    "`partition_loss` of tensors": _loss,
}


class _Profile:
    """The modules of the package whose functions run, and calls from lower layers into the estimators."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.ways_back: set[str] = set()

    def __call__(self, frame, event, _) -> None:
        module = self._module(frame)
        if event != "call" or module is None or frame.f_code.co_name == "<module>":
            return
        if module.endswith("__init__"):  # finds a name, whose module is then imported
            return
        self.modules.add(module)
        caller = frame.f_back
        while caller is not None and self._module(caller) is None:
            caller = caller.f_back
        if module.startswith("estimators.") and caller is not None:
            from_module = self._module(caller)
            if from_module.startswith(("boosted.", "neural.", "losses.", "likelihood.", "aggregation.")):
                self.ways_back.add(f"{from_module} -> {module}.{frame.f_code.co_qualname}")

    def _module(self, frame) -> str | None:
        path = frame.f_code.co_filename
        return path[len(SOURCE) : -len(".py")].replace("/", ".") if path.startswith(SOURCE) else None


def _profiled(walk: Callable[[Path], None], folder: Path) -> _Profile:
    walk(folder)  # compile kernels and import modules
    profile = _Profile()
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        walk(folder)
    finally:
        sys.setprofile(before)
    return profile


@pytest.mark.parametrize("title", WALKS)
def test_the_page_names_the_modules_of_each_walk(title: str, tmp_path: Path) -> None:
    if title != "Ballots to worths":
        pytest.importorskip("torch" if WALKS[title] in (_xmc, _loss) else "lightgbm")
    profile = _profiled(WALKS[title], tmp_path)
    kernels = {name for name in profile.modules if name.endswith("_kernels")}
    modules = profile.modules - kernels - set(FOUNDATION)

    heading = rf"\*\*{re.escape(title)}\*\* \((\d+) modules, (\d+) in all\)\.(.*?)\n\n"
    stated, stated_in_all, text = re.search(heading, PAGE, re.DOTALL).groups()
    named = {
        name for name in re.findall(r"`([a-z_.]+)`", text) if Path(SOURCE, f"{name.replace('.', '/')}.py").exists()
    }
    assert named == modules
    assert int(stated) == len(modules) <= MOST_MODULES
    if sys.version_info < (3, 12):  # later versions of Python do not profile compiled kernels
        assert int(stated_in_all) == len(profile.modules)
    assert not profile.ways_back
