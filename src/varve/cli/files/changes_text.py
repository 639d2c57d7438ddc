"""What a change breaks, as text for a terminal, as Markdown for a pull request, and as values for programs.

Not here: the comparison itself (against.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varve.model.errors import counted, some
from varve.planning.changes.changes import ChangeKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from varve.cli.files.against import BrokenUse, Comparison
    from varve.planning.changes.changes import DatasetChange
    from varve.sql.syntax.errors import Problem

_NOBODY = "nobody"


def others(comparison: Comparison, problems: Iterable[Problem]) -> list[Problem]:
    """Those of the problems of files that are no use which the change breaks."""
    places = {(use.problem.source.path, use.problem.span.start) for use in comparison.broken_uses if use.problem}
    return [problem for problem in problems if (problem.source.path, problem.span.start) not in places]


def as_values(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain values for `--json`."""
    return {
        "against": comparison.against,
        "changes": [_change_values(change) for change in comparison.changes],
        "breaks": [
            {
                "dataset": use.dataset,
                "upstream": use.upstream,
                "column": use.column or None,
                "message": use.message,
                "place": use.place or None,
                "owners": list(use.owners),
                "certain": use.certain,
            }
            for use in comparison.broken_uses
        ],
        "consequences": [
            {"dataset": name, "message": consequence.message, "new_generation": consequence.new_generation}
            for name, listed in comparison.consequences.items()
            for consequence in listed
        ],
        "uncompared": list(comparison.uncompared),
    }


def as_text(comparison: Comparison) -> Iterator[str]:
    """Yield the lines for a terminal: what has changed and who reads it, and then each place that breaks."""
    for change in comparison.changes:
        yield f"{change.dataset} {_became(change, comparison.against)}{_owned(change.owners)}"
        for column in change.columns if change.kind is ChangeKind.CHANGED else ():
            yield f"  {column.message(change.dataset)}"
        for dataset, columns, through, reader_owners in _readers(change):
            path = f" through {', '.join(through)}" if through else ""
            what = f" uses {some(columns)}" if columns else " reads it"
            yield f"  {dataset}{what}{path}{_owned(reader_owners)}"
    for use in comparison.broken_uses:
        owners = _owned(use.owners)
        yield f"{'breaks' if use.certain else 'look at'} {use.dataset}{owners}"
        if use.problem is not None:
            yield from (f"  {line}" for line in str(use.problem).splitlines())
        else:
            note = "" if use.certain else " Its code has changed too: see that it fits."
            yield f"  {f'{use.place}: ' if use.place else ''}{use.message}{note}"
    for name, listed in comparison.consequences.items():
        yield f"what {comparison.against} has published of {name}"
        yield from (f"  {consequence.message}" for consequence in listed)
    if comparison.uncompared:
        yield (f"Not compared, because {comparison.against} has errors in them: {some(comparison.uncompared)}.")
    yield _summary(comparison)


def as_markdown(comparison: Comparison) -> Iterator[str]:
    """Yield the lines of a comment for a pull request."""
    yield f"### Datasets, compared with `{comparison.against}`"
    yield ""
    yield _summary(comparison) if comparison.harmless else f"**{_summary(comparison)}**"
    if comparison.errors:
        yield ""
        yield "| error | where |"
        yield "|---|---|"
        for problem in comparison.errors:
            yield f"| {_cell(problem.message)} | `{problem.place}` |"
    if comparison.broken_uses:
        yield ""
        yield "| breaks | owners | because | where |"
        yield "|---|---|---|---|"
        for use in comparison.broken_uses:
            note = "" if use.certain else " (its code has changed too: see that it fits)"
            place = f"`{use.place}`" if use.place else ""
            yield f"| `{use.dataset}` | {_names(use.owners)} | {_cell(use.message)}{note} | {place} |"
    if comparison.changes:
        yield ""
        yield "| dataset | change | read by |"
        yield "|---|---|---|"
        for change in comparison.changes:
            columns = [column.message(change.dataset) for column in change.columns]
            what = " ".join(columns) if change.kind is ChangeKind.CHANGED else change.kind
            readers = [
                f"`{dataset}`{f' through {some(through)}' if through else ''} ({_names(owners)})"
                for dataset, _, through, owners in _readers(change)
            ]
            yield f"| `{change.dataset}` | {_cell(what)} | {'<br>'.join(readers)} |"
    if comparison.consequences:
        yield ""
        yield "| dataset | what follows for its batches |"
        yield "|---|---|"
        for name, listed in comparison.consequences.items():
            yield f"| `{name}` | {_cell(' '.join(consequence.message for consequence in listed))} |"
    if comparison.uncompared:
        yield ""
        yield f"Not compared, because `{comparison.against}` has errors in them: {some(comparison.uncompared)}."


def _change_values(change: DatasetChange) -> dict[str, Any]:
    return {
        "dataset": change.dataset,
        "change": change.kind,
        "owners": list(change.owners),
        "columns": [
            {
                "column": column.column,
                "change": column.kind,
                "before": column.before,
                "after": column.after,
                "renamed_to": column.renamed_to,
                "breaking": column.breaks,
            }
            for column in change.columns
        ],
        "readers": [
            {
                "dataset": reader.dataset,
                "column": reader.column or None,
                "through": list(reader.through),
                "owners": list(reader.owners),
            }
            for reader in change.readers
        ],
    }


def _readers(change: DatasetChange) -> list[tuple[str, list[str], tuple[str, ...], tuple[str, ...]]]:
    """By reader the columns that it uses, the datasets between, and its owners."""
    readers: dict[str, tuple[list[str], tuple[str, ...], tuple[str, ...]]] = {}
    for reader in change.readers:
        columns, _, _ = readers.setdefault(reader.dataset, ([], reader.through, reader.owners))
        columns += [reader.column] if reader.column else []
    return [(dataset, columns, through, owners) for dataset, (columns, through, owners) in readers.items()]


def _summary(comparison: Comparison) -> str:
    breaks: Sequence[BrokenUse] = comparison.breaks
    evolving = sorted(
        name
        for name, listed in comparison.consequences.items()
        if any(consequence.new_generation for consequence in listed)
    )
    runs = f" Once it is deployed: varve evolve {' '.join(evolving)}." if evolving else ""
    if comparison.errors:
        files = sorted({problem.source.path for problem in comparison.errors})
        also = f" {_broken_datasets(comparison)}" if breaks else ""
        return f"{counted(len(files), 'file')} with errors: {some(files)}.{also}{runs}"
    if not breaks:
        return f"No dataset is broken by what has changed since {comparison.against}.{runs}"
    return f"{_broken_datasets(comparison)}{runs}"


def _broken_datasets(comparison: Comparison) -> str:
    datasets = sorted({use.dataset for use in comparison.breaks})
    owners = sorted({owner for use in comparison.breaks for owner in use.owners})
    whose = f", of {some(owners)}" if owners else ""
    return f"{counted(len(datasets), 'dataset')} broken by what has changed since {comparison.against}{whose}."


def _became(change: DatasetChange, against: str) -> str:
    if change.kind is ChangeKind.CHANGED:
        return f"has changed since {against}"
    return f"is new since {against}" if change.kind is ChangeKind.ADDED else f"is gone since {against}"


def _owned(owners: Sequence[str]) -> str:
    return f" (owners: {', '.join(owners)})" if owners else " (no owner)"


def _names(owners: Sequence[str]) -> str:
    return ", ".join(owners) or _NOBODY


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
