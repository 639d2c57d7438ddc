"""A torture of any length: `python -m tests.torture.long --hours 1 --seed 7`, or `make torture-long HOURS=1 SEED=7`.

It ends with 1 at the first thing that is wrong, and keeps its folder, where `steps.jsonl` has all turns: a bad history
is played again by `--steps FILE --until TURN`, and one seed plays the same history again. `--kills 500` kills runs,
captures, rollbacks, sweeps and promotions at random milliseconds until so many have died. Clocks are wrong where there
is a C compiler, and the disk is full where a file system can be mounted.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tests.torture.history import HURT, Turn, turns
from tests.torture.model import Model
from tests.torture.operations import Operations, lay
from tests.torture.project import Ended, TorturedProject
from tests.torture.readers import Readers
from tests.torture.rest import TABLES, rest
from varve.services.postgres import warehouse_url

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.torture.history import Operation

# Exit codes of a command: refused with a message is 1; everything else is nothing that a person can mend.
REFUSED = 1
# By Ctrl-C, or by SIGTERM.
ASKED_TO_END = {130, 143}


@dataclass
class Torture:
    """One history, told as it goes on.

    Attributes:
        commands: how many commands were run, were refused, and died.
        refusals: what commands said that were refused while nothing was killed, by how often.
    """

    project: TorturedProject
    log: TextIO
    turns: int = 0
    rests: int = 0
    kills: int = 0
    commands: dict[str, int] = field(default_factory=lambda: {"run": 0, "refused": 0, "died": 0})
    refusals: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    reads: dict[str, int] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def run(self, history: Iterable[Turn], *, seconds: float, kills: int | None = None) -> None:
        """Play a history until its end, the end of the time, so many kills, or the first thing that is wrong."""
        ended = self.project.run("up")
        assert ended.code == 0, ended.output
        model = Model()
        readers = Readers(warehouse_url(self.project.settings), model)
        operations = Operations(self.project, model, readers, self.tell)
        with operations.source() as source:
            lay(source)
        for table in TABLES:
            ended = self.project.run("cdc", "bootstrap", f"bank.{table}")
            assert ended.code == 0, ended.output
        operations.send({"days": range(6)})
        killed_since_rest, last = False, Turn(0, ())
        self._rest(operations, killed=False)
        readers.start()
        # The time is that of the history: what is laid before it takes as long as it takes.
        self.began = time.monotonic()
        try:
            for turn in history:
                if self.problems or time.monotonic() - self.began > seconds or self.kills >= (kills or sys.maxsize):
                    break
                last = turn
                self._turn(operations, turn)
                killed_since_rest |= turn.kills
                if turn.rests and not self.problems:
                    self._rest(operations, killed=killed_since_rest)
                    killed_since_rest = False
                self.problems += readers.wrong
            if not last.rests and not self.problems:
                self._rest(operations, killed=killed_since_rest)
        finally:
            readers.stop()
            self.problems += [problem for problem in readers.wrong if problem not in self.problems]
            self.reads = dict(readers.reads)
            self.tell(f"{sum(readers.away.values())} reads had no answer while a server was away")

    def _turn(self, operations: Operations, turn: Turn) -> None:
        self.turns += 1
        self._write(turn.as_values())
        operations.turn = turn
        began = time.monotonic()
        if turn.hurts:
            operations.readers.may_fail.set()
        with ThreadPoolExecutor(len(turn.operations)) as pool:
            futures = [(each, pool.submit(self._carried_out, operations, each, turn)) for each in turn.operations]
        told = []
        for operation, future in futures:
            ended = future.result()
            told.append(f"{operation.name} {ended.code}" if ended.code else operation.name)
            self._judge(turn, operation, ended)
        if turn.hurts:
            up = self.project.run("up")
            if up.code != 0:
                self.problems.append(f"turn {turn.number}: varve up ended with {up.code}: {up.output[-2_000:]}")
            operations.readers.may_fail.clear()
        reads = sum(operations.readers.reads.values())
        took = time.monotonic() - began
        self.tell(f"turn {turn.number}: {', '.join(told)} in {took:.1f} s; {reads} reads and {self.kills} kills so far")

    def _carried_out(self, operations: Operations, operation: Operation, turn: Turn) -> Ended:
        try:
            return operations.carry_out(operation)
        except Exception as error:
            if turn.hurts:
                # The torture's own connections die with the server too.
                return Ended(REFUSED, f"{type(error).__name__}: {error}")
            raise

    def _judge(self, turn: Turn, operation: Operation, ended: Ended) -> None:
        """Whether a command may end so."""
        self.commands["run"] += 1
        died = operation.dies and (ended.code < 0 or ended.code in ASKED_TO_END)
        self.kills += died or operation.name in HURT
        self._write({"turn": turn.number, "operation": operation.name, "code": ended.code, "said": ended.output[-600:]})
        if died:
            self.commands["died"] += 1
        elif ended.code == 0:
            return
        elif ended.code == REFUSED or turn.hurts:
            self.commands["refused"] += 1
            if not turn.hurts:
                lines = ended.output.strip().splitlines() or [""]
                reason = f"{operation.name}: {lines[-1][:160]}"
                self.refusals[reason] = self.refusals.get(reason, 0) + 1
        else:
            self.problems.append(f"turn {turn.number}: {operation} ended with {ended.code}: {ended.output[-3_000:]}")

    def _rest(self, operations: Operations, *, killed: bool) -> None:
        began = time.monotonic()
        problems = rest(operations, after_kills=killed, deep=self.rests % 5 == 4)
        self.rests += 1
        self.problems += [f"at rest after turn {self.turns}: {problem}" for problem in problems]
        self.tell(f"at rest after turn {self.turns}: {len(problems)} problems, {time.monotonic() - began:.1f} s")

    def _write(self, values: object) -> None:
        self.log.write(json.dumps(values) + "\n")
        self.log.flush()

    def tell(self, text: str) -> None:
        """Say it on the terminal, and in the log."""
        minutes = (time.monotonic() - self.began) / 60
        sys.stdout.write(f"{dt.datetime.now(dt.UTC):%H:%M:%S} {minutes:6.1f} min  {text}\n")
        sys.stdout.flush()
        self._write({"told": text})

    def summary(self) -> str:
        """What it came to."""
        reads = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.reads.items()))
        return (
            f"{self.turns} turns, {self.commands['run']} operations ({self.commands['died']} died, "
            f"{self.commands['refused']} refused), {self.kills} kills, {self.rests} rests, "
            f"{sum(self.reads.values()):,} reads ({reads}): {len(self.problems)} problems"
        )


def torture(
    seed: int, seconds: float, steps: Path | None = None, until: int | None = None, kills: int | None = None
) -> Torture:
    """Play a history, of a seed or of a file; everything is removed where nothing was wrong."""
    history: Iterable[Turn] = turns(seed, deadly=kills is not None)
    if steps is not None:
        lines = [json.loads(line) for line in steps.read_text(encoding="utf-8").splitlines()]
        history = [Turn.of(line) for line in lines if "operations" in line]
    project = TorturedProject.make()
    log_file = project.folder / "steps.jsonl"
    with log_file.open("w", encoding="utf-8") as log:
        made = Torture(project, log)
        made.tell(f"seed {seed}, {seconds / 60:g} minutes, in {project.folder}")
        try:
            made.run((turn for turn in history if until is None or turn.number <= until), seconds=seconds, kills=kills)
            made.tell(made.summary())
            for problem in made.problems:
                made.tell(problem)
            for reason, count in sorted(made.refusals.items(), key=lambda item: -item[1]):
                made.tell(f"refused {count} times: {reason}")
        finally:
            project.spark.stop()
            project.server.stop()
    if made.problems:
        made_text = f"Kept: {project.folder}. Again: --seed {seed}, or --steps {log_file} --until TURN.\n"
        sys.stdout.write(made_text)
    else:
        project.end()
    return made


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="how long; 0.1 is six minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=Path, help="play the turns of this log, not those of a seed")
    parser.add_argument("--kills", type=int, help="kill nearly everything, at random milliseconds, so many times")
    parser.add_argument("--until", type=int, help="the last turn to play")
    given = parser.parse_args()
    made = torture(given.seed, given.hours * 3_600, given.steps, given.until, given.kills)
    sys.exit(1 if made.problems else 0)


if __name__ == "__main__":
    main()
