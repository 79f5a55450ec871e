"""Speed of reading ranking files, compared with scikit-learn and napkinXC.

    python benchmarks/data.py

Generates MSLR-shaped text (200,000 rows x 136 features) and EUR-Lex-shaped XMC text, reads both with every reader in
turn and checks that the results are equal. Prints tables and writes results/data.json.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from measure import report, save
from napkinxc.datasets import load_libsvm_file
from rich.console import Console
from sklearn.datasets import load_svmlight_file

import plackett
from plackett.data import dump_xmc, load_letor, load_xmc, make_multilabel
from plackett.experiments.timing import interleaved

console = Console()


def write_mslr(path: Path, rows: int = 200_000, features: int = 136) -> None:
    """Write numbers like those of MSLR-WEB10K: counts, and values with six decimals."""
    rng = np.random.default_rng(0)
    is_count = np.arange(features) % 3 < 2
    with path.open("w") as file:
        for first in range(0, rows, 1000):
            X = np.where(is_count, rng.geometric(0.1, (1000, features)) - 1, rng.lognormal(0, 3, (1000, features)))
            grades = rng.choice(5, 1000, p=(0.52, 0.32, 0.13, 0.02, 0.01))
            for i, (grade, row) in enumerate(zip(grades, X.tolist(), strict=True)):
                cells = [f"{j + 1}:{v:.0f}" if is_count[j] else f"{j + 1}:{v:.6f}" for j, v in enumerate(row)]
                file.write(f"{grade} qid:{(first + i) // 120 + 1} {' '.join(cells)} \n")


def mslr(folder: Path) -> dict[str, Any]:
    path, cache = folder / "mslr.txt", folder / "cache"
    write_mslr(path)
    peer, y, qid = load_svmlight_file(str(path), query_id=True)
    for data in (load_letor(path), load_letor(path, cache=cache), load_letor(path, cache=cache)):
        if not ((peer.toarray() == data.X).all() and (data.y == y).all() and (data.qid == qid).all()):
            raise SystemExit("the readers disagree")
    seconds = interleaved(
        {
            "load_letor": lambda: load_letor(path),
            "load_letor, sparse": lambda: load_letor(path, sparse=True),
            "load_letor, from the cache": lambda: load_letor(path, cache=cache),
            "scikit-learn": lambda: load_svmlight_file(str(path), query_id=True),
        },
        3,
    )
    return {"bytes": path.stat().st_size, "seconds": seconds}


def xmc(folder: Path) -> dict[str, Any]:
    path = folder / "xmc.txt"
    options: dict[str, Any] = {"labels_per_row": 5.3, "features_per_row": 237.0, "random_state": 0}
    dump_xmc(make_multilabel(15_539, 5_000, 3_993, **options), path)
    peer, _ = load_libsvm_file(str(path), labels_format="csr_matrix", sort_indices=True)
    if abs(load_xmc(path, dtype=np.float32).X - peer).max() > 1e-6:  # napkinXC stores single precision
        raise SystemExit("the readers disagree")
    seconds = interleaved(
        {
            "load_xmc": lambda: load_xmc(path),
            "napkinXC": lambda: load_libsvm_file(str(path), labels_format="csr_matrix", sort_indices=True),
        },
        5,
    )
    return {"bytes": path.stat().st_size, "seconds": seconds}


def show(title: str, result: dict[str, Any], against: str) -> None:
    rows = [
        [name, f"{s:.3f}", f"{result['bytes'] / 1e6 / s:.0f}", f"{result['seconds'][against] / s:.1f}"]
        for name, s in result["seconds"].items()
    ]
    report(title, ["reader", "seconds", "MB/s", f"speed relative to {against}"], rows, console)


def main() -> None:
    console.print(f"{plackett.get_num_threads()} threads\n")
    with tempfile.TemporaryDirectory() as name:
        results = {"threads": plackett.get_num_threads(), "mslr": mslr(Path(name)), "xmc": xmc(Path(name))}
    show("MSLR-shaped text, 200,000 rows x 136", results["mslr"], "scikit-learn")
    show("EUR-Lex-shaped XMC text, 15,539 rows", results["xmc"], "napkinXC")
    save(results, "data", console)


if __name__ == "__main__":
    main()
