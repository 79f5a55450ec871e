"""Build the wheel and the sdist, install them into empty environments, and try every extra there.

    python tests/smoke_wheel.py                  # all extras, from the wheel; and the sdist alone
    python tests/smoke_wheel.py neural files     # these extras only

Nothing of the repository is on the path: programs run in an empty folder, in Python's isolated mode. Prints the size of
what each extra installs.
"""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_FOR_USERS = {"dev", "docs", "test"}

BASE = """
import plackett, numpy as np
assert plackett.partition_log_likelihood(np.zeros(3), np.array([1, 0, 0]))[0] < 0
assert "site-packages" in plackett.__file__
"""
PROGRAMS = {
    "neural": """
import torch
from plackett import NeuralRanker
from plackett.data import make_tiered_lists
NeuralRanker(epochs=1, progress=False).fit(make_tiered_lists(20, random_state=0))
""",
    "boosted": """
from plackett import BoostedRanker
from plackett.data import make_tiered_lists
BoostedRanker(n_estimators=3, progress=False).fit(make_tiered_lists(20, random_state=0))
""",
    "distributed": """
import dask.array as da
from plackett.distributed import is_dask
assert is_dask(da.zeros(3))
""",
    "report": """
from plackett import RankAggregator
RankAggregator().fit([["a", "b"], ["b", "a"]]).plot("worths.png")
""",
    "onnx": """
from plackett import NeuralRanker
from plackett.data import make_tiered_lists
NeuralRanker(epochs=1, progress=False).fit(make_tiered_lists(20, random_state=0)).export_onnx("model.onnx")
""",
    "files": """
from plackett.data import dump_parquet, load_parquet, make_tiered_lists
dump_parquet(make_tiered_lists(3, random_state=0), "data.parquet")
assert len(load_parquet("data.parquet")) == 3
""",
    "all": "import dask, lightgbm, matplotlib, onnxruntime, pyarrow, torch",
}
COMMANDS = [
    ["--version"],
    ["demo", "--seeds", "1", "--queries", "50"],
    ["train", "plackett-demo/train.txt", "--test", "plackett-demo/test.txt", "-o", "model", "-p", "n_estimators=5"],
    ["predict", "model", "plackett-demo/test.txt", "-o", "scores.txt"],
    ["evaluate", "plackett-demo/test.txt", "scores.txt"],
    ["aggregate", "matches.csv", "--edges"],
]
MATCHES = "winner,loser\na,b\nb,a\nb,c\nc,a\na,c\n"


def run(*command: str | Path, cwd: Path) -> str:
    """Run a program and return its output; its errors are shown if it fails."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path) -> dict[str, Path]:
    """Build both distributions in an environment of their own."""
    run(sys.executable, "-m", "venv", folder / "build", cwd=folder)
    python = folder / "build" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "build", "hatchling", cwd=folder)
    run(python, "-m", "build", "--no-isolation", "--outdir", folder / "dist", ROOT, cwd=folder)
    dist = folder / "dist"
    return {"wheel": next(dist.glob("*.whl")), "sdist": next(dist.glob("*.tar.gz"))}


def size_of(folder: Path) -> float:
    """Megabytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def smoke(package: Path, extra: str, folder: Path) -> float:
    """Install the package with an extra into an empty environment, try it, and return the megabytes installed."""
    environment, work = folder / "environment", folder / "work"
    work.mkdir(parents=True)
    run(sys.executable, "-m", "venv", environment, cwd=folder)
    python = environment / "bin" / "python"
    site = next((environment / "lib").glob("python*/site-packages"))
    before = size_of(site)
    wanted = f"{package}[{extra}]" if extra else str(package)
    run(python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wanted, cwd=work)
    size = size_of(site) - before
    run(python, "-I", "-W", "ignore", "-c", BASE + PROGRAMS.get(extra, ""), cwd=work)
    if not extra:
        (work / "matches.csv").write_text(MATCHES)
        for command in COMMANDS:
            run(environment / "bin" / "plackett", *command, cwd=work)
    return size


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [extra for extra in project["optional-dependencies"] if extra not in NOT_FOR_USERS]
    chosen = sys.argv[1:] or ["", *extras]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        packages = build(folder)
        for extra in chosen:
            with tempfile.TemporaryDirectory() as own:
                print(f"plackett[{extra}]: {smoke(packages['wheel'], extra, Path(own)):.0f} MB", flush=True)
        if len(sys.argv) == 1:
            with tempfile.TemporaryDirectory() as own:
                print(f"sdist: {smoke(packages['sdist'], '', Path(own)):.0f} MB")


if __name__ == "__main__":
    main()
