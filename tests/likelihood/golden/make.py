"""Write likelihood.json: 30-digit values on a grid, so that tests are fast. Takes about twenty minutes.

Existing cases in the file are kept; delete it to compute all of them again.

python tests/likelihood/golden/make.py
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from oracles import exact_derivatives, golden_scores

TIERS = {
    2: [[1, 1]],
    3: [[2, 1], [1, 2]],
    5: [[4, 1], [2, 3]],
    7: [[6, 1], [2, 2, 3], [1, 1, 1, 1, 1, 2]],
    20: [[1, 3, 6, 10], [15, 5], [19, 1]],
    60: [[50, 10], [5, 10, 10, 15, 15, 5]],
    200: [[100, 100], [20, 40, 140]],
    600: [[300, 300]],
    2000: [[5, 1995], [60, 140, 1800], [900, 1100], [300, 300, 300, 300, 300, 500]],
}
# spread of the scores, gap between tiers, shift of all scores
SCORES = [
    (0.5, 0, 0), (5, 0, 0), (30, 0, 0), (1, 5, 500), (1, -5, -500), (0.5, 10, 0), (3, 15, 0), (1, 40, 0), (1, -40, 0),
    (1, 700, 0), (1, -700, 500),
]  # fmt: skip
# Which of them for long lists, by number of tiers and size of the first; the others take hours in 30 digits.
_LARGE = {6: {300: (3, 4)}, 2: {5: (0, 2, 5, 6, 8, 9, 10)}}
CUTOFFS = {7: [1, 2, 4], 20: [2, 5, 10], 60: [10]}


def cases() -> list[dict[str, Any]]:
    found = []
    for n, shapes in TIERS.items():
        for tier_sizes in shapes:
            for seed, (spread, gap, shift) in enumerate(SCORES):
                if n >= 600 and seed not in _LARGE.get(len(tier_sizes), {}).get(tier_sizes[0], (0, 2, 5, 6, 8)):
                    continue
                for top in [None, *CUTOFFS.get(n, [])]:
                    if top is not None and (seed in (3, 4, 6) or (n == 60 and seed not in (0, 2, 5, 8))):
                        continue
                    found.append(
                        {
                            "tier_sizes": tier_sizes,
                            "seed": seed,
                            "spread": spread,
                            "gap": gap,
                            "shift": shift,
                            "top": top,
                        }
                    )
    return found


def solve(case: dict[str, Any]) -> dict[str, Any]:
    scores, labels = golden_scores(case)
    value, gradient, curvature = exact_derivatives(scores.tolist(), labels.tolist(), case["top"])
    some = sorted(set(np.linspace(0, len(scores) - 1, 12).astype(int).tolist()))
    digits = 20
    return {
        **case,
        "value": mp.nstr(value, 25),
        "items": some,
        "gradient": [mp.nstr(gradient[i], digits) for i in some],
        "curvature": [mp.nstr(curvature[i], digits) for i in some],
    }


if __name__ == "__main__":
    path = Path(__file__).parent / "likelihood.json"
    stored = json.loads(path.read_text()) if path.exists() else []
    known = {json.dumps({key: case[key] for key in cases()[0]}): case for case in stored}
    wanted = [case for case in cases() if json.dumps(case) not in known]
    with ProcessPoolExecutor(2) as pool:
        for k, result in enumerate(pool.map(solve, wanted), 1):
            known[json.dumps(wanted[k - 1])] = result
            print(f"{k}/{len(wanted)}", result["tier_sizes"], result["top"], flush=True)
    lines = ",\n".join(json.dumps(known[json.dumps(case)]) for case in cases())
    path.write_text(f"[\n{lines}\n]\n")
