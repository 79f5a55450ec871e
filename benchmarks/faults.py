"""Inject faults into training runs and stored models, many times, and count how many they survive.

    python benchmarks/faults.py

Prints a table and writes results/faults.json. The trials are those of tests/faults with other seeds. The full-disk
trial needs `unshare` to mount a small file system without root privileges.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from measure import report, save
from rich.console import Console

console = Console()
TRIALS = Path(__file__).parents[1] / "tests" / "faults" / "trials.py"
SEED = 1
TIMES = {
    "kill_alone": 30, "kill_one_of_two": 15, "kill_one_of_two_shards": 15, "freeze_one_of_two": 3, "elastic_restart": 5,
    "full_disk": 20, "limited_files": 20, "limited_files_of_shards": 10, "read_only": 3, "cut_checkpoints": 1,
    "cut_checkpoints_of_shards": 1, "two_writers": 15,
}  # fmt: skip


def tried(fault: str, times: int) -> dict[str, Any]:
    launcher = [shutil.which("unshare") or "unshare", "-Urm"] if fault == "full_disk" else []
    command = [*launcher, sys.executable, str(TRIALS), str(SEED), f"{fault}={times}"]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 (our own code)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])[fault]
    return result | {"seconds": round(time.perf_counter() - start, 1)}


results = {}
for fault, times in TIMES.items():
    results[fault] = tried(fault, times)
    console.print(f"{fault}: {results[fault]['survived']} of {results[fault]['tried']} survived")
rows = [[r["fault"], *(f"{r[name]:,}" for name in ("tried", "survived", "lost"))] for r in results.values()]
report("Faults", ["fault", "tried", "survived", "lost"], rows, console)
save({"seed": SEED, "faults": results}, "faults", console)
sys.exit(any(result["lost"] for result in results.values()))
