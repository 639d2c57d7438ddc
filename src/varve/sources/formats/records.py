"""Parses a CSV text into records (RFC 4180): doubled quotes, quoted separators and line breaks, CRLF, LF or CR.

As Python's `csv` reads: a quote means something only where a field begins. Unlike it, this tells an empty text ("")
from nothing, a text such as "NA" from one that means NULL, and on which line a record begins.

Not here: parsing the values of fields (texts.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Stands before a text that was between quotes and would mean NULL without them; no decoded text has this character.
QUOTED = "\udcfe"
# No row has so many characters. It would fill the memory of the process that reads it, which others share.
LONGEST = 1 << 28


def unmarked(text: str) -> str:
    """The text of a field as it stood in the file, between quotes or not."""
    return text.removeprefix(QUOTED)


@dataclass
class Records:
    """The records of a text, which is given as lines with their line breaks.

    Attributes:
        blank_lines: whether a blank line is a record, which it is where there is one column.
        nulls: the texts that mean NULL where no quotes stand around them, beside the empty one.
        line: the number of the line that was read last, from 1.
        unended: whether the last line had no line break.
        spans: for each record of more than one line, by its first line, how many lines it takes.
    """

    lines: Iterator[str]
    separator: str
    quote: str
    blank_lines: bool = False
    nulls: frozenset[str] = frozenset()
    line: int = field(default=0, init=False)
    unended: bool = field(default=False, init=False)
    spans: dict[int, int] = field(default_factory=dict, init=False)

    def __iter__(self) -> Iterator[tuple[int, list[str], str]]:
        """For each record the line on which it begins, its fields, and the problem with it ("": none).

        Raises ValueError for a record of `LONGEST` characters or more.
        """
        separator, quote = self.separator, self.quote
        text = ""
        for text in self.lines:
            self.line += 1
            self.unended = text[-1] not in "\r\n"
            if quote and quote in text:
                first_line = self.line
                fields, problem = self._quoted(text)
                if self.line > first_line:
                    self.spans[first_line] = self.line - first_line + 1
                yield first_line, fields, problem
                continue
            content = text.rstrip("\r\n")
            if content or self.blank_lines:
                yield self.line, content.split(separator), ""

    def _quoted(self, text: str) -> tuple[list[str], str]:
        """The fields of a record that contains a quote, and the problem with it ("": none)."""
        separator, quote = self.separator, self.quote
        fields: list[str] = []
        problem, place = "", 0
        content = text.rstrip("\r\n")
        if content[0] == quote == content[-1]:
            # The number of quotes shows whether every field is quoted and has no quote within.
            fields = content[1:-1].split(f"{quote}{separator}{quote}")
            if content.count(quote) == 2 * len(fields):
                return [self._marked(value) for value in fields], ""
            fields = []
        while True:
            if content.startswith(quote, place):
                first_line, pieces, size = self.line, list[str](), 0
                place += 1
                while True:
                    end = text.find(quote, place)
                    if end < 0:
                        pieces.append(text[place:])
                        size += len(pieces[-1])
                        if size >= LONGEST:
                            raise ValueError(
                                f"the quote that opens field {len(fields) + 1} on line {first_line} is not closed "
                                f"within {LONGEST:,} characters"
                            )
                        text, place = next(self.lines, ""), 0
                        if not text:
                            fields.append("".join(pieces))
                            return (
                                fields,
                                f"the quote that opens field {len(fields)} on line {first_line} is not closed",
                            )
                        self.line += 1
                        continue
                    if text.startswith(quote, end + 1):
                        pieces.append(text[place : end + 1])
                        place = end + 2
                        continue
                    pieces.append(text[place:end])
                    place = end + 1
                    break
                content = text.rstrip("\r\n")
                value = self._marked("".join(pieces))
                if place < len(content) and not content.startswith(separator, place):
                    problem = problem or f"something follows the closing quote of field {len(fields) + 1}"
                    end = content.find(separator, place)
                    value += content[place:] if end < 0 else content[place:end]
                    place = len(content) if end < 0 else end
            else:
                end = content.find(separator, place)
                value = content[place:] if end < 0 else content[place:end]
                place = len(content) if end < 0 else end
            fields.append(value)
            if place >= len(content):
                self.unended = text[-1] not in "\r\n"
                return fields, problem
            place += len(separator)

    def _marked(self, value: str) -> str:
        return f"{QUOTED}{value}" if not value or value in self.nulls else value
