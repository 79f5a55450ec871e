"""Inject faults into training runs and saved models, as often as requested, and report the outcome.

    python tests/faults/trials.py SEED FAULT=TIMES ...

A trial is survived if its result is the same as without the fault; otherwise it is lost. Prints JSON by fault: tried,
survived, lost, and descriptions of the losses. Trials fork from this process, which has imported everything.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from forks import Fork, forks, together

from plackett import ExtremeClassifier
from plackett.data import make_multilabel
from plackett.distributed import join_process_group
from plackett.errors import PlackettError
from plackett.neural import NetworkCheckpoint
from plackett.neural.checkpoints import read_tensors

NOBODY = 65534
SETTINGS: dict[str, Any] = {
    "ensemble": 1, "hidden_sizes": [8], "epochs": 4, "batch_size": 8, "learning_rate": 0.02, "random_state": 0,
    "progress": False,
}  # fmt: skip


class Lost(Exception):  # noqa: N818 (no error of the program)
    """A trial did not end as it should."""


DATA = make_multilabel(64, 80, 23, labels_per_row=2, features_per_row=8, signal=0.9, random_state=0)


def train(checkpoint: Path, shards: int = 1) -> list[Any]:
    """Train, alone or with other processes, and return the weights. Every step writes a checkpoint."""
    with join_process_group():
        model = ExtremeClassifier(label_shards=shards, **SETTINGS)
        model.fit(DATA, checkpoint=checkpoint, checkpoint_every=0.0)
        return [tensor.tolist() for tensor in model.networks_[0].state_dict().values()]


def is_lost_process(problem: str | None) -> bool:
    return problem is not None and "LostProcessError: another process of this training failed or is gone" in problem


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Lost(what)


class Trials:
    """State shared by all trials of a run: one seed for all random moments, and the result without faults."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 (no secret)
        self._found: dict[tuple[int, int], tuple[Any, float]] = {}

    def undisturbed(self, processes: int = 1, shards: int = 1) -> tuple[Any, float]:
        """The final result of all processes without faults, and the seconds it takes."""
        key = processes, shards
        if key not in self._found:
            with tempfile.TemporaryDirectory() as folder:
                start = time.monotonic()
                found = together(processes, lambda: train(Path(folder), shards))
                self._found[key] = found, time.monotonic() - start
        return self._found[key]

    def moment(self, seconds: float) -> None:
        time.sleep(self.random.uniform(0.0, 1.1 * seconds))

    # Lost processes

    def kill_alone(self, folder: Path) -> None:
        """kill -9 at two random moments, then training to the end."""
        wanted, seconds = self.undisturbed()
        for _ in range(2):
            fork = Fork(lambda: train(folder))
            self.moment(seconds)
            fork.process.kill()
            fork.process.join()
        expect(together(1, lambda: train(folder)) == wanted, "another result")

    def kill_one_of_two(self, folder: Path, shards: int = 1) -> None:
        """kill -9 of one of two processes: the other must fail with a clear message, and both can resume."""
        wanted, seconds = self.undisturbed(2, shards)
        pair = forks(2, lambda: train(folder, shards))
        self.moment(seconds)
        killed = self.random.randrange(2)
        pair[killed].process.kill()
        found, problem = pair[1 - killed].outcome()
        pair[killed].process.join()
        expect(found == wanted[1 - killed] or is_lost_process(problem), f"the other one: {problem}")
        expect(together(2, lambda: train(folder, shards)) == wanted, "another result")

    def kill_one_of_two_shards(self, folder: Path) -> None:
        """kill -9 of one of two processes that hold half of the labels each."""
        self.kill_one_of_two(folder, 2)

    def freeze_one_of_two(self, folder: Path) -> None:
        """One of two processes stops responding: the other must fail after the timeout."""
        wanted, seconds = self.undisturbed(2)
        pair = forks(2, lambda: train(folder), PLACKETT_TIMEOUT="3")
        self.moment(seconds)
        frozen = self.random.randrange(2)
        if pair[frozen].process.pid is not None:
            os.kill(pair[frozen].process.pid, signal.SIGSTOP)
        found, problem = pair[1 - frozen].outcome()
        pair[frozen].process.kill()
        pair[frozen].process.join()
        expect(found == wanted[1 - frozen] or is_lost_process(problem), f"the other one: {problem}")
        expect(together(2, lambda: train(folder)) == wanted, "another result")

    def elastic_restart(self, folder: Path) -> None:
        """kill -9 of a process under torchrun --max-restarts: all are restarted and resume from the checkpoint."""
        wanted, seconds = self.undisturbed(2, 2)
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=3"]
        agent = subprocess.Popen(  # noqa: S603 (our own code)
            [sys.executable, *launch, __file__, "job", str(folder)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "PLACKETT_TIMEOUT": "120"},
        )  # fmt: skip
        while agent.poll() is None and not (folder / "state").exists():
            time.sleep(0.05)
        self.moment(0.5 * seconds)
        rank = self.random.randrange(2)
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # torchrun itself has failed
            os.kill(int((folder / f"{rank}-0.pid").read_text()), signal.SIGKILL)
        try:
            _, errors = agent.communicate(timeout=1200)
        finally:
            agent.terminate()
        expect(agent.returncode == 0, errors[-20000:])
        restarts = len(list(folder.glob(f"{rank}-*.pid"))) - 1
        expect(restarts == 1, f"{restarts} restarts")
        found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
        expect(found == wanted, "another result")

    # Disks

    def full_disk(self, folder: Path) -> None:
        """A file system with room for a random number of bytes: a clear error, and existing files stay."""
        wanted, _ = self.undisturbed()
        size = checkpoint_size()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={6 * size}", "none", str(folder)]
        subprocess.run(mount, check=True)  # noqa: S603
        try:
            together(1, lambda: train_some(folder))
            before = snapshot(folder)
            (folder / "filler").write_bytes(bytes(max(0, free_bytes(folder) - self.random.randrange(2 * size))))
            _, problem = Fork(lambda: train(folder)).outcome()
            expect(problem is None or "No space left" in problem or "os error 28" in problem, str(problem))
            expect(snapshot(folder).keys() == before.keys(), "something half-written is left")
            (folder / "filler").unlink()
            expect(together(1, lambda: train(folder)) == wanted, "another result")
        finally:
            subprocess.run(["umount", folder], check=True)  # noqa: S603, S607

    def limited_files(self, folder: Path, shards: int = 1) -> None:
        """A random limit on the size of files: a clear error, and existing files stay."""
        wanted, _ = self.undisturbed(shards, shards)
        size = checkpoint_size()
        together(shards, lambda: train_some(folder, shards))
        before = snapshot(folder)
        limit = self.random.randrange(size)

        def limited() -> Any:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            return train(folder, shards)

        for fork in forks(shards, limited):
            _, problem = fork.outcome()
            expect(problem is not None and ("File too large" in problem or "os error 27" in problem), str(problem))
        expect(snapshot(folder).keys() == before.keys(), "something half-written is left")
        expect(together(shards, lambda: train(folder, shards)) == wanted, "another result")

    def limited_files_of_shards(self, folder: Path) -> None:
        """A random limit on the size of files that two processes write together: both get the error."""
        self.limited_files(folder, 2)

    def read_only(self, folder: Path) -> None:
        """A read-only folder: training and saving fail with a clear error, and nothing changes."""
        wanted, _ = self.undisturbed()
        together(1, lambda: train_some(folder))
        before = snapshot(folder)
        for path in (folder, *folder.iterdir()):
            path.chmod(0o555 if path.is_dir() else 0o444)
        for work in (lambda: train(folder), lambda: fitted(0).save(folder / "model")):
            _, problem = Fork(as_nobody(work)).outcome()
            expect(problem is not None and problem.startswith("PermissionError"), str(problem))
        expect(snapshot(folder) == before, "something changed")
        for path in (folder, *folder.iterdir()):
            path.chmod(0o755 if path.is_dir() else 0o644)
        expect(together(1, lambda: train(folder)) == wanted, "another result")

    # Truncated files

    def cut_checkpoints(self, folder: Path, shards: int = 1) -> int:
        """A checkpoint truncated at every byte of the header and some of the rest: the previous one is used."""
        together(shards, lambda: train_some(folder, shards))
        path = next(folder.glob("*.safetensors"))
        before, good = path.with_name(f"{path.name}.before"), path.read_bytes()
        wanted, about = read_tensors(before)
        end = 8 + struct.unpack("<Q", good[:8])[0]
        sizes = [*range(end + 1), *self.random.sample(range(end, len(good)), 50)]
        for size in sizes:
            path.write_bytes(good[:size])
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found = NetworkCheckpoint(path, 0.0, about["of"]).load()
            expect(
                found is not None and "Resuming from the checkpoint before it" in str(caught[0].message),
                f"{size} bytes",
            )
            tensors = {} if found is None else found[0]
            same = tensors.keys() == wanted.keys() and all(torch.equal(tensors[name], wanted[name]) for name in wanted)
            expect(same, f"{size} bytes: another state")
        return len(sizes)

    def cut_checkpoints_of_shards(self, folder: Path) -> int:
        """A truncated checkpoint that two processes wrote together: the previous one is used."""
        return self.cut_checkpoints(folder, 2)

    # Concurrent writers

    def two_writers(self, folder: Path) -> None:
        """Two processes write models to one folder and one is killed: readers always find a complete model."""
        path = folder / "model"
        models = [fitted(seed) for seed in range(2)]
        scores = [model.predict(DATA.X[:4]).tolist() for model in models]
        models[0].save(path)
        writers = [Fork(lambda model=model: [model.save(path) for _ in range(40)]) for model in models]
        killed = self.random.randrange(2)
        end = time.monotonic() + self.random.uniform(0.0, 0.4)
        while time.monotonic() < end or any(writer.process.is_alive() for writer in writers):
            if time.monotonic() >= end:
                writers[killed].process.kill()
            expect(ExtremeClassifier.load(path).predict(DATA.X[:4]).tolist() in scores, "a mixture was read")
        _, problem = writers[1 - killed].outcome()
        expect(problem is None, str(problem))
        writers[killed].process.join()
        expect(ExtremeClassifier.load(path).predict(DATA.X[:4]).tolist() in scores, "a mixture is left")


def train_some(folder: Path, shards: int = 1) -> None:
    """Train, interrupted in the third epoch."""

    def cut(epoch: Any) -> None:
        if epoch.number == 2:
            raise KeyboardInterrupt

    with join_process_group(), contextlib.suppress(KeyboardInterrupt):
        model = ExtremeClassifier(label_shards=shards, **SETTINGS)
        model.fit(DATA, checkpoint=folder, checkpoint_every=0.0, callbacks=[cut])


@cache
def checkpoint_size() -> int:
    """The size of a checkpoint in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        together(1, lambda: train(Path(folder)))
        return max(path.stat().st_size for path in Path(folder).iterdir())


@cache
def fitted(seed: int) -> ExtremeClassifier:
    return ExtremeClassifier(**SETTINGS | {"epochs": 1, "random_state": seed}).fit(DATA)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "filler"}


def free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def as_nobody(work: Callable[[], Any]) -> Callable[[], Any]:
    """Run as an ordinary user, since root ignores permissions."""

    def run() -> Any:
        if os.getuid() == 0:
            os.setuid(NOBODY)
        return work()

    return run


def job(folder: Path) -> None:
    """The script that torchrun starts."""
    rank, restarts = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    (folder / f"{rank}-{restarts}.pid").write_text(str(os.getpid()))
    found = train(folder / "state", 2)
    while restarts == "0":  # finished before the kill: wait for it, since it ends all processes
        time.sleep(0.05)
    (folder / f"{rank}.json").write_text(json.dumps(found))


def run(fault: str, times: int, seed: int) -> dict[str, Any]:
    trials = Trials(seed)
    tried, losses = 0, []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            try:
                tried += getattr(trials, fault)(Path(folder)) or 1
            except (Lost, PlackettError) as error:
                tried += 1
                losses.append(str(error))
    about = str(getattr(Trials, fault).__doc__)
    return {"fault": about, "tried": tried, "survived": tried - len(losses), "lost": len(losses), "losses": losses}


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "job":
        job(Path(sys.argv[2]))
    else:
        os.environ.setdefault("PLACKETT_TIMEOUT", "30")  # in case one is killed before they connect
        fitted(0)  # compile kernels before forking
        trials = dict(argument.split("=") for argument in sys.argv[2:])
        print(json.dumps({fault: run(fault, int(times), int(sys.argv[1])) for fault, times in trials.items()}))
