"""The gallery: every example with its code, what it prints and what it draws."""

import ast
import json
from pathlib import Path


def gallery_page(examples: Path, outputs: Path) -> str:
    """The page as Markdown; `outputs` holds what the examples printed and drew."""
    lines = [
        "# Gallery",
        "",
        "Complete programs on simulated data. The tests run them and compare what they print with this page;",
        "`make gallery` runs them again.",
        "",
    ]
    if (outputs / "made.json").exists():
        made = json.loads((outputs / "made.json").read_text())
        known = made["versions"]
        names = ("plackett", "python", "numpy", "numba", "torch", "lightgbm", "scikit-learn")
        versions = ", ".join(f"{name} {known[name]}" for name in names)
        lines += [f"Made on {made['date']} on {known['processor']} with {versions}.", ""]
    for path in sorted(examples.glob("*.py")):
        code = path.read_text()
        title, _, about = (ast.get_docstring(ast.parse(code)) or path.stem).partition("\n")[0].partition(": ")
        body = code.split('"""', 2)[2].strip("\n")
        lines += [f"## {title}", "", about[:1].upper() + about[1:], "", f"    python examples/{path.name}", ""]
        if (outputs / f"{path.stem}.png").exists():
            lines += [f"![{title}](gallery/{path.stem}.png)", ""]
        lines += ["```python", body, "```", ""]
        if (outputs / f"{path.stem}.txt").exists():
            lines += ["prints", "", "```text", (outputs / f"{path.stem}.txt").read_text().rstrip("\n"), "```", ""]
    return "\n".join(lines)
