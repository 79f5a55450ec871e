"""Checks of output files, made before the work starts."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer


def _callback(check: Callable[[Path], Any]) -> Callable[[Path | None], Path | None]:
    """Make an option callback that turns errors of the check into errors of the option."""

    def run(path: Path | None) -> Path | None:
        try:
            if path is not None:
                check(path)
        except (OSError, ValueError) as error:
            raise typer.BadParameter(str(error)) from None
        return path

    return run


def _check_file(path: Path) -> None:
    from plackett.data.files import check_target

    check_target(str(path))


def _check_figure(path: Path) -> None:
    from plackett.data.files import check_figure

    check_figure(str(path))


def _check_table(path: Path) -> None:
    from plackett.aggregation.summary import table_format

    table_format(path)
    _check_file(path)


def _check_model(path: Path) -> None:
    from plackett.estimators.persistence import check_folder

    check_folder(path)


def _check_folder(path: Path) -> None:
    from plackett.data.files import can_create_files, check_new_folder

    if not path.exists():
        check_new_folder(path)
    elif not path.is_dir() or not can_create_files(path):
        raise PermissionError(f"expected a folder that can be written to, got {path}")


FILE, FIGURE, TABLE, MODEL, FOLDER = map(
    _callback, (_check_file, _check_figure, _check_table, _check_model, _check_folder)
)
"""Callbacks for options that name an output of this kind."""


def check_outputs_differ(model: str, /, **outputs: Path | None) -> None:
    """Raise an error if an output, named by its option, would replace another or be inside the model folder."""
    real = {name: Path(os.path.realpath(path)) for name, path in outputs.items() if path is not None}
    plain = {name: path for name, path in real.items() if not path.exists() or path.is_file() or path.is_dir()}
    for name, path in plain.items():
        for other, taken in plain.items():
            if name != other and (path == taken or (other == model and taken in path.parents)):
                raise typer.BadParameter(
                    f"the path must not be the same as --{other} or inside it, got {path}", param_hint=f"--{name}"
                )
