"""The documents, as tests read them: pages, blocks of code, and what is written as code within a line.

Not here: what must hold of them (test_documents.py), and running their commands (tests/e2e/).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tests.support.project import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = sorted(
    str(file.relative_to(ROOT)) for file in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/*.md")]
)
_FENCE = re.compile(r"\s*```(\w*)")
_RUNNER = re.compile(r"<!-- (\S+) runs ")
_HEADING = re.compile(r"#+ (.*)")


@dataclass(frozen=True)
class Block:
    """A block of code of a page.

    Attributes:
        heading: the one that it stands under.
        runner: the test file that runs it, which a comment above the block names: <!-- FILE runs this block -->
    """

    page: str
    line: int
    heading: str
    language: str
    text: str
    runner: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """Its commands: after `$` where it shows output too, else every line."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return [re.sub(r"\s+# .*", "", line) for line in prompted or lines]


@cache
def text_of(page: str) -> str:
    """A page as it is written."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(*languages: str) -> list[Block]:
    """All blocks of these languages, or of any."""
    return [block for page in PAGES for block in _blocks(page) if not languages or block.language in languages]


def _blocks(page: str) -> Iterator[Block]:
    heading, begun, language, runner, above, lines = "", 0, "", None, "", list[str]()
    for number, line in enumerate(text_of(page).splitlines(), start=1):
        if fence := _FENCE.match(line):
            if begun:
                yield Block(page, begun, heading, language, "\n".join(lines) + "\n", runner)
                begun, above, lines = 0, "", []
            else:
                found = _RUNNER.search(above)
                begun, language, runner = number, fence[1], found[1] if found else None
        elif begun:
            lines.append(line)
        elif line.strip():
            above = line
            if title := _HEADING.match(line):
                heading = title[1]


def prose_of(page: str) -> str:
    """A page without its blocks."""
    kept, within = list[str](), False
    for line in text_of(page).splitlines():
        if _FENCE.match(line):
            within = not within
        elif not within:
            kept.append(line)
    return "\n".join(kept)


def code_in_lines(page: str) -> list[str]:
    """What a page has between backticks; a bar that is escaped for a table is a bar."""
    return [found.replace("\\|", "|") for found in re.findall(r"`([^`\n]+)`", prose_of(page))]


def anchors_of(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site write them."""
    headings = re.findall(r"^#+ (.*)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
