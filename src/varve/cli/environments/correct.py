"""`varve correct`: corrected files and all that follows from them become current in one transaction.

An environment is made, the files are landed into it, what follows is computed there, and it is promoted; the files go
into the landing folder with that. Where a run publishes one dataset after the other, readers of two of them see states
in between; here they see the state before, and then the one after.

Not here: what each of these steps does (work.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pendulum

from varve.catalog.code.code_states import CodeStates
from varve.catalog.environments.dropped import DroppedMeanwhile
from varve.catalog.environments.environments import Environments
from varve.catalog.environments.held import held
from varve.cli.environments import promotions, work
from varve.cli.selection import by_column, dataset_named, refuse_of_others, who
from varve.model.errors import BadInput, UnknownPartition, VarveError, counted, some
from varve.model.partitions.dimension import DynamicDimension
from varve.model.partitions.key import parse_path
from varve.planning.backfill import with_downstream
from varve.planning.environment_runs import Wanted
from varve.sources.landing import listing
from varve.stores.environments.promotion import Closure, Promotion

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rich.console import Console

    from varve.dagster.environments.open_environment import EnvironmentWork, OpenEnvironment
    from varve.model.dataset import Dataset
    from varve.stores.environments.promotion import LeftBehind


@dataclass(frozen=True)
class Corrected:
    """What a correction has done, or would do.

    Attributes:
        files: by partition, the file that it is of now.
        computed, taken: by dataset, how many partitions were computed, or taken as they were made before.
        follows: with a dry run: by dataset, how many partitions may follow at most.
        promotion: None with a dry run.
        held: by dataset and partition why it stays as it is, although what it reads has changed.
        sets: the dynamic sets to which it may bring keys, each with the dataset that fills it. Partitions of new keys
            come after the correction, and not with it.
    """

    dataset: str
    files: Mapping[str, Path]
    computed: Mapping[str, int] = field(default_factory=dict)
    taken: Mapping[str, int] = field(default_factory=dict)
    follows: Mapping[str, int] = field(default_factory=dict)
    promotion: Promotion | None = None
    held: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    sets: Mapping[str, str] = field(default_factory=dict)

    def as_values(self) -> dict[str, Any]:
        """The same as plain values for `--json`."""
        values: dict[str, Any] = {
            "dataset": self.dataset, "files": {path: str(file) for path, file in self.files.items()},
            "sets": dict(self.sets),
        }  # fmt: skip
        if self.promotion is None:
            return {**values, "follows": dict(self.follows)}
        counts = {"computed": dict(self.computed), "taken": dict(self.taken), "held": dict(self.held)}
        return {**values, **counts, **promotions.promotion_values(self.promotion)}


def correct(
    console: Console | None, name: str, words: Sequence[str], behind: LeftBehind, *, effects: bool, dry_run: bool
) -> Corrected:
    """Make corrected files current, with all that follows from them.

    Raises BadInput for words that are no files of the dataset, VarveError where the code here is not what is deployed,
    where a file cannot be read, a run fails, the same partitions are corrected right now, or production gets another
    file meanwhile; NotClosed as a promotion does. Readers see nothing of any of it.
    """
    with work.connected("correct") as connection:
        refuse_of_others(connection, [name.replace("/", ".")])
        dataset = _dataset(name)
        files = _files(dataset, words)
        environment, environments = _environment_of(dataset, files, dry_run=dry_run), Environments(connection)
        with held(connection, environment):
            begun = any(environment == made.name for made in environments.all())
            if begun and not dry_run:
                # By one that was killed, or has failed. As if it were begun now, with what is there already.
                environments.rebase(environment, code_too=True)
            elif not begun:
                environments.create(environment, by=who())
            return _in_environment(
                console, environment, dataset, files, behind, effects=effects, dry_run=dry_run, begun=begun
            )


def _environment_of(dataset: Dataset, files: Mapping[str, Path], *, dry_run: bool) -> str:
    """The environment in which these partitions are corrected: whoever types the command again means the same."""
    digest = blake2b("\n".join([dataset.name, *files]).encode(), digest_size=6).hexdigest()
    return f"{work.CORRECTION}{'look_' if dry_run else ''}{digest}"


def _in_environment(
    console: Console | None, environment: str, dataset: Dataset, files: Mapping[str, Path], behind: LeftBehind, *,
    effects: bool, dry_run: bool, begun: bool,
) -> Corrected:  # fmt: skip
    """Correct in an environment, which goes with the end of it unless something was computed there and is not public.

    `begun`: whether an earlier call has made it.
    """
    from varve.dagster.environments.arrivals import land

    keep = begun and not dry_run
    try:
        with work.opened(environment, shown=False) as opened:
            follows = _following(opened, dataset, files)
            _refuse_more(opened, environment, follows)
            _refuse_other_code(opened, follows)
            if dry_run:
                counts = {name: len(paths) for name, paths in follows.items() if name != dataset.name}
                return Corrected(dataset.name, files, follows=counts, sets=_filled_sets(opened, follows))
            for path, file in files.items():
                if console is not None:
                    console.print(f"{dataset} {path}: {file}", markup=False, highlight=False, soft_wrap=True)
                land(opened, dataset.name, file, dict(parse_path(path)))
            # From here on something was computed that another attempt can use.
            keep, sets = True, _filled_sets(opened, follows)
            done = opened.run(Wanted(paths=follows), effects=effects, before=work.announcing(console))
            promotion = (
                Promotion(environment, {}, {}, Closure(), {})
                if _is_current(opened, dataset, files)
                else _promote(console, opened, dataset, files, behind, only=follows, done=done, effects=effects)
            )
    except DroppedMeanwhile:
        keep = True
        raise
    except VarveError as error:
        if not keep:
            raise
        raise VarveError(_with_next_steps(str(error), environment)) from error
    except KeyboardInterrupt:
        if keep and console is not None:
            console.print(_with_next_steps("Interrupted", environment), highlight=False, soft_wrap=True)
        raise
    finally:
        if not keep:
            work.drop(environment)
    work.drop(environment)
    return Corrected(dataset.name, files, **work.counts_of(done), promotion=promotion, held=done.held, sets=sets)


def show(console: Console, corrected: Corrected) -> None:
    """Print what became current, or what would follow."""
    if corrected.promotion is None:
        for path, file in corrected.files.items():
            line = f"{corrected.dataset} {path} would be of {file}."
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        counts = [f"{counted(count, 'partition')} of {name}" for name, count in corrected.follows.items()]
        console.print(
            f"At most, where rows that they read differ: {', '.join(counts) or 'nothing'}. Nothing was computed: this "
            "was a dry run.", highlight=False, soft_wrap=True,
        )  # fmt: skip
        _show_sets(console, corrected.sets)
        return
    for name, batches in corrected.promotion.batches.items():
        console.print(f"{name}: {counted(len(batches), 'partition')} became current.", highlight=False)
    for name, paths in corrected.held.items():
        path, reason = next(iter(paths.items()))
        line = f"{name}: {counted(len(paths), 'partition')} stays as it is, such as {path}: {reason}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if not corrected.promotion.batches:
        console.print("Nothing differs from what is current: nothing was changed.")
        return
    console.print(
        f"All in one transaction, as run {corrected.promotion.run_id}; "
        f"{counted(len(corrected.files), 'file')} went into the landing folder with it. To go back: "
        f"varve rollback --run {corrected.promotion.run_id}", highlight=False, soft_wrap=True,
    )  # fmt: skip
    _show_sets(console, corrected.sets)


def _show_sets(console: Console, sets: Mapping[str, str]) -> None:
    for set_name, source in sets.items():
        console.print(
            f"Keys that {source} has not had before come into the set {set_name} afterwards, by the sensor "
            "partition_sets; the partitions of those keys are not in the transaction.",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip


def _is_current(opened: OpenEnvironment, dataset: Dataset, files: Mapping[str, Path]) -> bool:
    """Whether production has the files, and the rows of all that was made of them: they were corrected before."""
    partitions = [dataset.partitioning.from_path(path) for path in files]
    return opened.corrections.are_taken(dataset, partitions) and all(
        row.same_content for row in Environments(opened.connection).overlay(opened.name)
    )


def _promote(
    console: Console | None, opened: OpenEnvironment, dataset: Dataset, files: Mapping[str, Path], behind: LeftBehind,
    *, only: Collection[str], done: EnvironmentWork, effects: bool,
) -> Promotion:  # fmt: skip
    reason = f"corrected: {dataset} {some(list(files), limit=2)}"
    with work.connected("correct") as connection:
        return promotions.promote_opened(
            console, opened, connection, behind, reason=reason, only=only, done=done, effects=effects
        )


def _dataset(name: str) -> Dataset:
    dataset = dataset_named(name.replace("/", "."))
    if not dataset.landing or dataset.incremental is not None or listing.pattern_of(dataset).many:
        why = (
            "it has no landing files" if not dataset.landing else "its partitions may have several files"
            if listing.pattern_of(dataset).many else "its partitions grow file by file"
        )  # fmt: skip
        raise BadInput(
            f"{dataset}: {why}, so that no file can take the place of a partition's. Nothing was changed. "
            "`varve backfill` computes partitions again."
        )
    return dataset


def _files(dataset: Dataset, words: Sequence[str]) -> dict[str, Path]:
    """By partition, in order, its file: named by its columns, or by the name of each file.

    Raises BadInput for what is no file, of no partition, or of one that another file is of.
    """
    named = [word for word in words if not Path(word).is_file()]
    given = [Path(word) for word in words if Path(word).is_file()]
    if missing := [word for word in named if not _is_value(dataset, word)]:
        raise BadInput(f"{', '.join(missing)}: there is no such file. Nothing was changed.")
    if not given:
        raise BadInput(f"{dataset}: name the corrected files, as the partner would send them. Nothing was changed.")
    if named:
        if len(given) > 1:
            raise BadInput(
                f"{' '.join(named)} names one partition, and there are {len(given)} files. Nothing was changed. "
                "Name one file, or files with the names that the partner gives them."
            )
        values = by_column(named)
        if set(values) != set(dataset.partitioning.names):
            wanted = " ".join(f"{name}=..." for name in dataset.partitioning.names)
            raise BadInput(f"{dataset}: a file is of one partition; name it: {wanted}. Nothing was changed.")
        try:
            return {dataset.partitioning.parsed(values).path: given[0]}
        except UnknownPartition as error:
            raise BadInput(f"{' '.join(named)} is no file, and no partition: {error} Nothing was changed.") from error
    if not dataset.partitioning.dimensions and len(given) == 1:
        # Whatever it is called, it can be of nothing else.
        return {dataset.partitioning.parsed({}).path: given[0]}
    pattern, files = listing.pattern_of(dataset), dict[str, Path]()
    for file in sorted(given):
        # As it is called here: where a link leads to may be called like another partition.
        name = "/".join(file.absolute().parts[-1 - len(pattern.folders) :])
        try:
            path = pattern.key(name).path
        except UnknownPartition as error:
            raise BadInput(
                f"{file}: its name is not one of {dataset}: {error} Nothing was changed. Name the partition: "
                f"varve correct {dataset} {file} {' '.join(f'{column}=...' for column in dataset.partitioning.names)}"
            ) from error
        if path in files:
            raise BadInput(f"{files[path]} and {file} are both of {dataset} {path}. Nothing was changed.")
        files[path] = file
    return dict(sorted(files.items()))


def _is_value(dataset: Dataset, word: str) -> bool:
    """Whether a word that is no file is a value of a column (`version=1.5`), and not a file that is not there."""
    column, equals, _ = word.partition("=")
    return bool(equals) and (column in dataset.partitioning.names or not Path(word).suffix)


def _following(opened: OpenEnvironment, dataset: Dataset, files: Mapping[str, Path]) -> dict[str, list[str]]:
    """By dataset, the partitions of these files and all that read them, directly or not."""
    keys = [dataset.partitioning.from_path(path) for path in files]
    reached = with_downstream(
        opened.graph, dataset, keys, None, members=opened.members, now=pendulum.now("UTC")
    )  # fmt: skip
    return {name: [key.path for key in partitions] for name, partitions in reached.items()}


def _filled_sets(opened: OpenEnvironment, follows: Collection[str]) -> dict[str, str]:
    """The dynamic sets that are filled from these datasets, each with its dataset."""
    dimensions = [each for dataset in opened.graph.datasets.values() for each in dataset.partitioning.dimensions]
    return {
        each.set_name: each.source.dataset
        for each in dimensions
        if isinstance(each, DynamicDimension) and each.source is not None and each.source.dataset in follows
    }


def _refuse_more(opened: OpenEnvironment, environment: str, follows: Mapping[str, Sequence[str]]) -> None:
    """Raise VarveError where somebody has computed something else in the environment, which would be promoted too."""
    overlay = Environments(opened.connection).overlay(environment)
    more = sorted({row.dataset for row in overlay if row.partition not in follows.get(row.dataset, ())})
    if more:
        raise VarveError(
            f"in environment {environment}, which an earlier call has left, there are partitions of {some(more)} too, "
            "which do not follow from these files"
        )


def _refuse_other_code(opened: OpenEnvironment, follows: Mapping[str, object]) -> None:
    """Raise VarveError where the code here is not what is deployed: a correction must not deploy code."""
    states = CodeStates(opened.connection).of(opened.graph)
    if other := sorted(name for name in follows if name in states and states[name].differs):
        raise VarveError(
            f"the code here of {some(other)} is not the one that is deployed, and a correction deploys none. Nothing "
            "was changed. Check out what is deployed, or deploy first: varve plan"
        )


def _with_next_steps(error: str, environment: str) -> str:
    commands = f"varve env run {environment} and varve promote {environment}"
    return (
        f"{error.rstrip('.')}. Readers have seen nothing of the correction. What was computed stays in environment "
        f"{environment}: to go on, {commands}; to forget it, varve env drop {environment}"
    )
