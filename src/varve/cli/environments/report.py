"""What the commands over environments print.

Not here: doing it (work.py), and the words and options of the commands (commands.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape

from varve.cli.printing import Table
from varve.cli.selection import size_text
from varve.model.errors import counted, some
from varve.stores.environments.promotion import not_closed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from varve.catalog.environments.environments import Environment
    from varve.stores.environments.promotion import Promotion


def show_created(console: Console, environment: Environment) -> None:
    """Print what was made, and what to do with it."""
    base = "whatever is current" if environment.base is None else f"publish {environment.base}"
    console.print(f"Environment {environment.name} stands on {base}; nothing was copied.", highlight=False)
    console.print(
        f"Change your datasets, then: varve env run {environment.name} [DATASET [COL=VALUE]...] [--from --to]",
        highlight=False,
    )


def show_list(console: Console, environments: Sequence[Environment]) -> None:
    """Print the environments as a table."""
    if not environments:
        console.print("There is no environment. varve env create NAME makes one.")
        return
    table = Table("name", "stands on", "of", "last used", "datasets", "partitions", "only here")
    for environment in environments:
        base = "production (live)" if environment.base is None else f"publish {environment.base}"
        used = f"{environment.used_at:%Y-%m-%d %H:%M}{' (expired)' if environment.expired else ''}"
        table.add_row(
            environment.name,
            base,
            environment.created_by,
            used,
            f"{environment.datasets:,}",
            f"{environment.partitions:,}",
            size_text(environment.size),
        )
    console.print(table)


def show_compared(console: Console, comparison: dict[str, Any]) -> None:
    """Print what an environment has instead of production."""
    base = "production" if comparison["base"] is None else f"publish {comparison['base']} of {comparison['base_at']}"
    console.print(
        f"{comparison['name']} stands on {base}; {size_text(comparison['bytes_only_here'])} are only here.",
        highlight=False,
    )
    if not comparison["overlay"]:
        console.print(f"It has computed nothing yet: varve env run {comparison['name']}")
        return
    table = Table("dataset", "partitions", "equal", "differ", "new", "rows", "such as")
    for name, counts in comparison["overlay"].items():
        table.add_row(
            name, f"{counts['partitions']:,}", f"{counts['equal']:,}", f"{counts['differ']:,}", f"{counts['new']:,}",
            f"{counts['rows']:,}", some(counts["differing"], limit=2) if counts["differing"] else "",
        )  # fmt: skip
    console.print(table)
    console.print(f"Rows: varve diff DATASET --to env:{comparison['name']}", highlight=False)


def show_run(console: Console, result: dict[str, Any]) -> None:
    """Print what was computed, or would be."""
    if "due" in result:
        rewritten = result.get("rewritten", {})
        if not result["due"] and not rewritten:
            console.print("Nothing differs in code or inputs: there is nothing to compute.")
        for dataset, count in rewritten.items():
            console.print(
                f"{dataset}: {counted(count, 'partition')} would be written again for another generation, from the "
                "rows of the one before", highlight=False, soft_wrap=True,
            )  # fmt: skip
        for dataset, paths in result["due"].items():
            console.print(f"{dataset}: {counted(len(paths), 'partition')}: {some(paths, limit=4)}", highlight=False)
        if result["due"] or rewritten:
            console.print(
                "and then what reads them, where their rows differ. Nothing was computed: this was a dry run."
            )
        return
    for verb, key in (
        ("Written again for another generation, from the rows of the one before:", "rewritten"),
        ("Computed", "computed"),
        ("Taken, as the same code made it from the same inputs before:", "taken"),
    ):
        if counts := result.get(key):
            texts = [f"{counted(count, 'partition')} of {dataset}" for dataset, count in counts.items()]
            console.print(f"{verb} {', '.join(texts)}.", highlight=False)
    if not any(result.get(key) for key in ("rewritten", "computed", "taken")):
        differs = "" if result["stuck"] else "Nothing differs in code or inputs: nothing was computed."
        console.print(differs or "Nothing was computed.")
    for dataset, paths in result["stuck"].items():
        path, reason = next(iter(paths.items()))
        console.print(
            f"[yellow]{dataset}: {counted(len(paths), 'partition')} not computed[/], such as {path}: {escape(reason)}"
        )
    console.print(f"varve env show {result['environment']} compares it with production.", highlight=False)


def show_dropped(console: Console, environment: Environment) -> None:
    """Print what was forgotten."""
    console.print(
        f"Environment {environment.name} is forgotten, with {counted(environment.partitions, 'partition')} "
        f"({size_text(environment.size)} that nobody else needs, which varve sweep deletes when its time has come).",
        highlight=False,
    )


def show_promotion(console: Console, promotion: Promotion, *, dry_run: bool, computes_first: bool = False) -> None:
    """Print what became current, or would; `computes_first`: what production has moved meanwhile."""
    if not promotion.batches and not promotion.codes and not promotion.left_out:
        console.print(f"Environment {promotion.environment} has nothing that production has not.", highlight=False)
        if promotion.replaced:
            name = promotion.environment
            console.print(
                f"Production has other code of {some(promotion.replaced)} since. Where the code here is to take its "
                f"place: varve env rebase {name} --merged, varve env run {name}, varve promote {name} --earlier-code.",
                highlight=False, soft_wrap=True,
            )  # fmt: skip
    verb = "would become current" if dry_run else "became current"
    for name, batches in promotion.batches.items():
        code = f", with code {promotion.codes[name]}" if name in promotion.codes else ""
        console.print(f"{name}: {counted(len(batches), 'partition')} {verb}{code}.", highlight=False)
    for name in sorted(set(promotion.codes) - set(promotion.batches)):
        console.print(f"{name}: its code {'would be' if dry_run else 'is'} deployed.", highlight=False)
    moved = "not made from what is current now" + (", and would be computed first" if computes_first else "")
    lacking = "that readers have would be missing" if dry_run else "that readers had are missing"
    for title, paths_by_dataset in (
        (moved, promotion.closure.moved),
        (lacking, promotion.closure.lacking),
        ("left behind with old inputs or old code", promotion.closure.behind),
        ("left out", promotion.left_out),
    ):
        for name, paths in paths_by_dataset.items():
            path, reason = next(iter(paths.items()))
            console.print(
                f"[yellow]{name}: {counted(len(paths), 'partition')} {title}[/], such as {path}: {escape(reason)}",
                highlight=False,
            )
    for name in promotion.removed:
        console.print(
            f"{name}: the code of {promotion.environment} declares it no more. Its partitions stay for readers until: "
            f"varve drop {name}", highlight=False, soft_wrap=True,
        )  # fmt: skip
    if promotion.left_out and not promotion.batches and not promotion.codes:
        console.print("By itself nothing of it is consistent, and nothing was promoted.", highlight=False)
    if promotion.run_id:
        console.print(
            f"All in one transaction, which computed nothing, as run {promotion.run_id}. {_way_back(promotion)}",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    elif promotion.number is not None:
        console.print(
            f"Plan {promotion.number}. varve apply {promotion.number} promotes exactly this.", highlight=False
        )


def _way_back(promotion: Promotion) -> str:
    if not promotion.codes:
        return f"To go back: varve rollback --run {promotion.run_id}"
    if any(promotion.instead_of.get(name) for name in promotion.codes):
        return f"To go back: varve revert {promotion.number}"
    added = ", ".join(f"varve drop {name}" for name in sorted(promotion.codes))
    return f"What it has added stays until its declaration is gone here, and: {added}"


def show_refusal(console: Console, promotion: Promotion) -> None:
    """Print why a promotion that was only looked at would be refused, and what to do."""
    text = f"As it is, it would be refused: {not_closed(promotion)}."
    console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
