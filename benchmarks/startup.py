"""First calls in fresh processes, with an empty cache (cold) and with a full one (warm), against numba itself.

The reference imports numba and compiles a loop of ten lines; its warm form imports numba and loads that loop from
numba's cache. All times are of whole processes, in seconds of the processor and of the clock; ratios are of the
processor's. `--functions NAME` lists what a cold entry point compiles, the costliest functions first.
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
        **os.environ,
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


def _measure(code: str, repeats: int) -> dict[str, float]:
    """Medians of cold and warm processes."""
    cold, warm = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as name:
            cold.append(_run(code, Path(name))[:2])
            warm.append(_run(code, Path(name))[:2])
    return {
        f"{kind} {what}": median(run[i] for run in runs)
        for kind, runs in (("cold", cold), ("warm", warm))
        for i, what in enumerate(("CPU", "clock"))
    }


def main(
    repeats: Annotated[int, typer.Option(min=1)] = 3,
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
    results = {"reference": _measure(_REFERENCE, repeats)}
    for name, code in _ENTRY_POINTS.items():
        results[name] = _measure(code, repeats)
        console.print(name, {key: round(value, 2) for key, value in results[name].items()})
    rows = []
    for name, times in results.items():
        ratios = [times[f"{kind} CPU"] / results["reference"][f"{kind} CPU"] for kind in ("cold", "warm")]
        wanted = ["" if x is None else f"{x:g}" for x in _LARGEST.get(name, (None, None))]
        rows.append(
            [
                name,
                *(f"{x:.2f}" for x in times.values()),
                *(f"{a:.1f} {f'({b})' if b else ''}" for a, b in zip(ratios, wanted, strict=True)),
            ]
        )
    columns = ["first call", "cold CPU", "clock", "warm CPU", "clock", "cold ratio (limit)", "warm ratio (limit)"]
    report("Seconds of a process that makes a first call", columns, rows, console)
    save({"seconds": results}, "startup", console)


if __name__ == "__main__":
    typer.run(main)
