"""How LightGBM reacts to corrupted model texts, with and without our check.

Each text is read in its own process, because the process may crash or hang: that is why the check exists. Needs fork.
"""

import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import lightgbm
from measure import report, save
from rich.console import Console

from plackett.boosted.model_text import check_model_text
from plackett.errors import DataError

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fuzz import MODELS, X, mutate

_TEXTS = 600
_LONGEST = 5  # seconds


def _fate(text: str) -> str:
    """Read the text and predict in a child process; return how the process ended."""
    child = os.fork()
    if child == 0:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        signal.alarm(_LONGEST)
        try:
            booster = lightgbm.Booster(model_str=text)
            booster.predict(X)
            booster.predict(X, pred_contrib=True)
            os._exit(0)
        except Exception:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return "hangs" if os.WTERMSIG(status) == signal.SIGALRM else "crashes"
    return "taken" if os.WEXITSTATUS(status) == 0 else "refused"


def main() -> None:
    text = MODELS["boosted"]().booster_.model_to_string(num_iteration=-1).encode()
    trees, end, rest = text.partition(b"end of trees")
    fates: dict[str, Counter[str]] = {"LightGBM alone": Counter(), "behind our check": Counter()}
    for number in range(_TEXTS):
        altered = (mutate(trees, random.Random(number)) + end + rest).decode("utf-8", "replace")  # noqa: S311
        fates["LightGBM alone"][_fate(altered)] += 1
        try:
            fates["behind our check"][_fate(check_model_text(altered, "model.txt"))] += 1
        except DataError:
            fates["behind our check"]["refused"] += 1
    columns = ["taken", "refused", "crashes", "hangs"]
    rows = [[name, *(f"{counts[column]:,}" for column in columns)] for name, counts in fates.items()]
    console = Console()
    report(f"{_TEXTS} corrupted model texts", ["", *columns], rows, console)
    save({"texts": _TEXTS, "fates": fates}, "altered_trees", console)


if __name__ == "__main__":
    main()
