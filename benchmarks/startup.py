"""First calls in fresh processes, with an empty cache (cold) and with a full one (warm), against numba itself.

The reference imports numba and compiles a loop of ten lines; its warm form imports numba and loads that loop from
numba's cache. All times are of whole processes, in seconds of the processor and of the clock, the median of some rounds
in which all take turns; ratios are of the processor's. Python keeps the bytecode of modules, as of installed packages.
`import torch` and `import lightgbm` show how much of a first call is theirs. `--functions NAME` lists what a cold entry
point compiles, the costliest functions first. `--ahead` compares the clock of `plackett compile` with the sum of the
cold first calls that it replaces, each on its own cache.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from measure import report, save
from rich.console import Console

_REFERENCE = """
import numba, numpy as np
@numba.njit(cache=True)
def loop(x):
    total = 0.0
    for i in range(x.size):
        if x[i] > 0.0:
            total += x[i]
        else:
            total -= 2.0 * x[i]
        if total > 1e9:
            total = 0.0
    return total
loop(np.ones(10))
"""
_ARRAYS = "import numpy as np; s = np.random.default_rng(0).standard_normal(100); y = np.arange(100) % 3\n"
_TABLE = (
    _ARRAYS
    + "X = np.random.default_rng(1).standard_normal((200, 5)); z = np.arange(200) % 3; q = np.arange(200) // 20\n"
)
_BALLOTS = "[list('abcd'), list('badc'), list('cabd'), list('dbca'), list('acdb')] * 3"
_ENTRY_POINTS = {
    "partition_log_likelihood": _ARRAYS + "import plackett; plackett.partition_log_likelihood(s, y)",
    "partition_loss, torch": _ARRAYS + "import torch; from plackett.losses import partition_loss\n"
    "partition_loss(torch.tensor(s, requires_grad=True), torch.tensor(y)).backward()",
    "BoostedRanker.fit": _TABLE + "import plackett; plackett.BoostedRanker(n_estimators=10).fit(X, z, qid=q)",
    "LinearRanker.fit": _TABLE + "import plackett; plackett.LinearRanker().fit(X, z, qid=q)",
    "RankAggregator.fit": f"import plackett; plackett.RankAggregator().fit({_BALLOTS})",
    "metrics.ndcg": _ARRAYS + "import plackett; plackett.metrics.ndcg(s, y, k=10)",
    "plackett aggregate": "import sys; sys.argv = ['plackett', 'aggregate', 'ballots.soc']\n"
    "from plackett.cli import main; main()",
}
_IMPORTS = {f"import {package}": f"import {package}" for package in ("numba", "torch", "lightgbm")}
_AHEAD = "import plackett; plackett.compile_kernels(jobs=2, progress=False)"
_LARGEST = {  # times the reference: cold, warm
    "partition_log_likelihood": (5.0, 1.5), "partition_loss, torch": (6.0, 1.5), "BoostedRanker.fit": (8.0, 1.5),
    "RankAggregator.fit": (8.0, 1.5), "metrics.ndcg": (3.0, 1.5), "plackett aggregate": (None, 2.0),
}  # fmt: skip
_LISTEN = """
import time
from numba.core import event
stack, own = [], {}
class Listener(event.Listener):
    def on_start(self, event):
        stack.append([event.data["dispatcher"].py_func.__qualname__, time.process_time(), 0.0])
    def on_end(self, event):
        name, start, inside = stack.pop()
        seconds = time.process_time() - start
        own[name] = own.get(name, 0.0) + seconds - inside
        if stack:
            stack[-1][2] += seconds
event.register("numba:compile", Listener())
"""
_SHOW = "\nimport json; print(json.dumps(own))"


def _run(code: str, folder: Path) -> tuple[float, float, str]:
    """Seconds of the processor and of the clock, and the output, of a process whose caches are in `folder`."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PLACKETT_CACHE_DIR": str(folder),
        "NUMBA_CACHE_DIR": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    script = folder / "script.py"  # numba caches only functions of files
    script.write_text(code)
    header = "# NUMBER ALTERNATIVES: 5\n# NUMBER VOTERS: 16\n# NUMBER UNIQUE ORDERS: 4\n"
    names = header + "".join(f"# ALTERNATIVE NAME {item}: item {item}\n" for item in range(1, 6))
    ballots = "".join(",".join(str((v * i) % 5 + 1) for i in range(5)) + "\n" for v in (1, 2, 3, 4))
    (folder / "ballots.soc").write_text(names + "".join(f"4: {line}\n" for line in ballots.split()))
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    result = subprocess.run(  # noqa: S603
        [sys.executable, str(script)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if result.returncode:
        raise RuntimeError(result.stderr)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, clock, result.stdout


def _cold_and_warm(code: str) -> list[float]:
    """Seconds of the processor and of the clock of a cold process, then of a warm one."""
    with tempfile.TemporaryDirectory() as name:
        return [*_run(code, Path(name))[:2], *_run(code, Path(name))[:2]]


def _first_calls(repeats: int, console: Console) -> None:
    runs: dict[str, list[list[float]]] = {}
    for _ in range(repeats):
        for name, code in {"reference": _REFERENCE, **_IMPORTS, **_ENTRY_POINTS}.items():
            runs.setdefault(name, []).append(_cold_and_warm(code))
    keys = ("cold CPU", "cold clock", "warm CPU", "warm clock")
    results = {
        name: {key: median(run[i] for run in found) for i, key in enumerate(keys)} for name, found in runs.items()
    }
    rows = []
    for name, times in results.items():
        ratios = {kind: times[f"{kind} CPU"] / results["reference"][f"{kind} CPU"] for kind in ("cold", "warm")}
        wanted = [f" ({x:g})" if x else "" for x in _LARGEST.get(name, (None, None))]
        cold = [*(f"{times[key]:.2f}" for key in keys[:2]), f"{ratios['cold']:.1f}{wanted[0]}"]
        warm = [*(f"{times[key]:.2f}" for key in keys[2:]), f"{ratios['warm']:.1f}{wanted[1]}"]
        rows.append([name, *([""] * 3 if name in _IMPORTS else cold), *warm])
    columns = ["first call", "cold CPU", "clock", "ratio (limit)", "warm CPU", "clock", "ratio (limit)"]
    report("Seconds of a process that makes a first call", columns, rows, console)
    _store({"seconds": results}, console)


def _ahead_of_time(console: Console) -> None:
    from plackett.ahead_of_time import TASKS

    def clock(code: str) -> float:
        with tempfile.TemporaryDirectory() as name:
            return _run(code, Path(name))[1]

    alone = {task: clock(f"from plackett.ahead_of_time import TASKS; TASKS[{task!r}][0]()") for task in TASKS}
    together = clock(_AHEAD)
    rows = [[name, f"{seconds:.1f}"] for name, seconds in alone.items()]
    rows += [["sum", f"{sum(alone.values()):.1f}"], ["plackett compile, two processes", f"{together:.1f}"]]
    rows += [["ratio (limit)", f"{together / sum(alone.values()):.2f} (0.6)"]]
    report("Seconds of the clock, cold", ["first calls", "clock"], rows, console)
    _store({"ahead of time": {"alone": alone, "together": together}}, console)


def _store(results: dict[str, object], console: Console) -> None:
    """Replace this part of the stored results."""
    path = Path(__file__).parent / "results" / "startup.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    kept = {key: stored[key] for key in ("seconds", "ahead of time") if key in stored}
    save({**kept, **results}, "startup", console)


def main(
    repeats: Annotated[int, typer.Option(min=1)] = 3,
    ahead: Annotated[bool, typer.Option("--ahead", help="Measure `plackett compile`.")] = False,
    functions: Annotated[str | None, typer.Option(help="An entry point whose compiled functions are listed.")] = None,
) -> None:
    console = Console()
    if functions is not None:
        with tempfile.TemporaryDirectory() as name:
            output = _run(_LISTEN + _ENTRY_POINTS[functions] + _SHOW, Path(name))[2]
        costliest = Counter(json.loads(output.splitlines()[-1])).most_common(20)
        report(
            f"Seconds of compilation, {functions}",
            ["function", "CPU s"],
            [[n, f"{s:.2f}"] for n, s in costliest],
            console,
        )
        return
    if ahead:
        _ahead_of_time(console)
    else:
        _first_calls(repeats, console)


if __name__ == "__main__":
    typer.run(main)
