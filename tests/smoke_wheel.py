"""Build the wheel and the sdist, install them into empty environments, and try every extra there.

    python tests/smoke_wheel.py                  # the wheel alone and with every extra, and the sdist
    python tests/smoke_wheel.py base sdist       # these only; `base` is the wheel without extras
    python tests/smoke_wheel.py neural files     # these extras only

Nothing of the repository is on the path: programs run in an empty folder, in Python's isolated mode. Versions are those
of the constraints files. The examples of README and of "Getting started" run where their pages say that they do. Prints
the size of what each extra installs.
"""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_FOR_USERS = {"dev", "docs", "integrations", "test"}
OF_INTEGRATIONS = {"sentence-transformers", "tracking", "trl"}  # what constraints-integrations.txt pins

BASE = """
import plackett, numpy as np
assert plackett.partition_log_likelihood(np.zeros(3), np.array([1, 0, 0]))[0] < 0
assert "site-packages" in plackett.__file__
"""
DATA = """
from plackett.data import make_tiered_lists
data = make_tiered_lists(20, random_state=0)
"""
PROGRAMS = {
    "neural": """
from plackett import ExtremeClassifier, NeuralRanker
from plackett.data import make_multilabel
from plackett.estimators import load_model
model = NeuralRanker(epochs=1, progress=False).fit(data)
model.save("network")
assert np.array_equal(load_model("network").predict(data.X), model.predict(data.X))
labels = make_multilabel(50, 60, 30, labels_per_row=2, features_per_row=5, random_state=0)
assert ExtremeClassifier(epochs=1, progress=False).fit(labels).predict_top(labels.X, 3)[0].shape == (50, 3)
""",
    "boosted": """
from plackett import BoostedRanker
assert BoostedRanker(n_estimators=3, progress=False).fit(data).predict(data.X).shape == data.y.shape
""",
    "distributed": """
import dask.array as da
from distributed import Client, LocalCluster
from plackett import BoostedRanker
arrays = [da.from_array(array, chunks=(40, *array.shape[1:])) for array in (data.X, data.y, data.qid)]
settings = {"n_estimators": 3, "num_leaves": 4, "n_jobs": 1, "random_state": 0, "progress": False}
with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:
    with Client(cluster):
        model = BoostedRanker(**settings).fit(arrays[0], arrays[1], qid=arrays[2])
assert np.allclose(model.predict(data.X), BoostedRanker(**settings).fit(data).predict(data.X))
""",
    "report": """
from pathlib import Path
from plackett import RankAggregator
RankAggregator().fit([["a", "b"], ["b", "a"]]).plot("worths.png")
assert Path("worths.png").read_bytes().startswith(b"\\x89PNG")
""",
    "onnx": """
import onnxruntime
from plackett import BoostedRanker, NeuralRanker
for model in (NeuralRanker(epochs=1, progress=False), BoostedRanker(n_estimators=3, progress=False)):
    model.fit(data).export_onnx("model.onnx")
    session = onnxruntime.InferenceSession("model.onnx")
    (wanted,) = session.get_inputs()
    X = data.X.astype(np.float32 if wanted.type == "tensor(float)" else np.float64)
    (scores,) = session.run(None, {wanted.name: X})
    assert np.allclose(scores, model.predict(data.X), atol=1e-4)
""",
    "sentence-transformers": """
from plackett.integrations.sentence_transformers import PartitionLoss
from sentence_transformers.cross_encoder import CrossEncoder
assert issubclass(PartitionLoss, __import__("torch").nn.Module)
""",
    "trl": """
import torch
from plackett.integrations.trl import PartitionRewardTrainer, partition_dpo_loss
policy, reference = torch.zeros(2), torch.zeros(2)
assert abs(partition_dpo_loss(policy, reference, grades=[1, 0], offsets=[0, 2], beta=0.1).item() - np.log(2)) < 1e-6
""",
    "jax": """
import jax, jax.numpy as jnp
from plackett.integrations.jax import partition_loss
loss, gradient = jax.value_and_grad(partition_loss)(jnp.zeros((1, 3)), jnp.array([[1, 0, 0]]))
assert abs(float(loss) - np.log(3)) < 1e-5
""",
    "tracking": """
from pathlib import Path
from plackett import BoostedRanker
from plackett.integrations.tracking import MLflowCallback, TensorBoardCallback, WandbCallback
import mlflow, wandb
model = BoostedRanker(n_estimators=3, progress=False)
model.fit(data, eval_set=data, callbacks=[TensorBoardCallback("runs")])
assert list(Path("runs").rglob("events*"))
""",
    "files": """
from plackett.data import dump_letor, dump_parquet, load_letor, load_parquet
dump_parquet(data, "data.parquet")
dump_letor(data, "data.txt.zst")
assert len(load_parquet("data.parquet")) == len(load_letor("data.txt.zst")) == 20
""",
}
PROGRAMS["all"] = "".join(PROGRAMS[extra] for extra in ("neural", "boosted", "distributed", "report", "onnx", "files"))
PAGES = {"": ["README.md", "docs/start/search.md", "docs/start/ballots.md"],
         "neural": ["docs/start/neural.md", "docs/start/tagging.md"]}  # fmt: skip
WITH_PAGES = ["pandas"]  # what these pages say to install beside Plackett
RUN_PAGES = """
import doctest, sys
for page in sys.argv[1:]:
    failed, tried = doctest.testfile(page, module_relative=False)
    assert tried and not failed, page
"""
COMMANDS = [
    ["--version"],
    ["demo", "--seeds", "1", "--queries", "50"],
    ["train", "plackett-demo/train.txt", "--test", "plackett-demo/test.txt", "-o", "model", "-p", "n_estimators=5",
     "--report", "model.html"],
    ["predict", "model", "plackett-demo/test.txt", "-o", "scores.txt"],
    ["evaluate", "plackett-demo/test.txt", "scores.txt", "--report", "evaluation.html"],
    ["aggregate", "matches.csv", "--edges", "--report", "worths.html"],
    ["reproduce", "--list"],
]  # fmt: skip
MISSING = {  # commands that need an extra, and the extra that the first line of the error must name
    "neural": ["train", "plackett-demo/train.txt", "-o", "network", "--model", "neural"],
    "report": ["aggregate", "matches.csv", "--edges", "--plot", "worths.png"],
    "files": ["info", "data.parquet"],
}
MATCHES = "winner,loser\na,b\nb,a\nb,c\nc,a\na,c\n"


def run(*command: str | Path, cwd: Path, fails: bool = False) -> str:
    """Run a program and return what it prints, or, if it is expected to fail, its errors."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False)  # noqa: S603
    if bool(done.returncode) != fails:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stderr if fails else done.stdout


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


def try_commands(plackett: Path, work: Path) -> None:
    """Try the command line of an installation without extras."""
    (work / "matches.csv").write_text(MATCHES)
    (work / "data.parquet").write_bytes(b"PAR1")
    for command in COMMANDS:
        run(plackett, *command, cwd=work)
    for extra, command in MISSING.items():
        first = run(plackett, *command, cwd=work, fails=True).splitlines()[0]
        if f"pip install 'plackett[{extra}]'" not in first:
            sys.exit(f"{' '.join(command)}: expected the first line to name the extra {extra}, got {first!r}")


def smoke(package: Path, extra: str, folder: Path) -> float:
    """Install the package with an extra, if any, into an empty environment, try it, and return the megabytes."""
    environment, work = folder / "environment", folder / "work"
    work.mkdir(parents=True)
    run(sys.executable, "-m", "venv", environment, cwd=folder)
    python = environment / "bin" / "python"
    site = next((environment / "lib").glob("python*/site-packages"))
    before = size_of(site)
    wanted = f"{package}[{extra}]" if extra else str(package)
    pins = ROOT / ("constraints-integrations.txt" if extra in OF_INTEGRATIONS else "constraints.txt")
    run(python, "-m", "pip", "install", "--quiet", "--constraint", pins, wanted, cwd=work)
    size = size_of(site) - before
    run(python, "-I", "-W", "ignore", "-c", BASE + DATA + (PROGRAMS[extra] if extra else ""), cwd=work)
    if not extra:
        try_commands(environment / "bin" / "plackett", work)
    if pages := [ROOT / page for page in PAGES.get(extra, [])]:
        run(python, "-m", "pip", "install", "--quiet", "--constraint", pins, *WITH_PAGES, cwd=work)
        run(python, "-I", "-W", "ignore", "-c", RUN_PAGES, *pages, cwd=work)
    return size


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [extra for extra in project["optional-dependencies"] if extra not in NOT_FOR_USERS]
    with tempfile.TemporaryDirectory() as name:
        packages = build(Path(name))
        for chosen in sys.argv[1:] or ["base", "sdist", *extras]:
            package = packages["sdist" if chosen == "sdist" else "wheel"]
            with tempfile.TemporaryDirectory() as own:
                size = smoke(package, "" if chosen in ("base", "sdist") else chosen, Path(own))
                print(f"{chosen}: {size:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
