"""Where the header of a SQL file stands, and what its first line seems to say, whether or not it can be parsed.

Not here: parsing it (header.py).
"""

from __future__ import annotations

import re

from varve.sql.syntax.errors import Problem, SourceFile, Span, SqlError

_CREATE = re.compile(r"\bCREATE\s+DATASET\s+`?([A-Za-z]\w*)`?\s*\.\s*`?([A-Za-z]\w*)`?", re.IGNORECASE)
# Space and comments, but for the one that has the header.
_SPACE = r"(?:\s|--[^\n]*\n|/\*(?!@)(?:(?!\*/).)*\*/)*"


def uncomment_header(source: SourceFile) -> str:
    """Return the text with the header uncommented, where it stands in a leading `/*@ ... */`; offsets stay the same."""
    match = re.match(rf"{_SPACE}/\*@", source.text, re.DOTALL)
    if match is None:
        return source.text
    start, end = match.end() - 3, source.text.find("*/", match.end())
    if end < 0:
        raise SqlError(Problem(source, Span(start, start + 3), "this comment with the header is not closed by */."))
    header, rest = source.text[start + 3 : end], source.text[end + 2 :]
    query = re.match(rf"{_SPACE}(?:SELECT|WITH|\()", rest, re.IGNORECASE | re.DOTALL)
    # Before a SELECT, the end of the comment is replaced by the word AS, where the header does not end with it.
    joint = "AS" if query and not re.search(r"\bAS\s*$", header, re.IGNORECASE) else "  "
    return source.text[:start] + "   " + header + joint + rest


def declared_name(source: SourceFile) -> str:
    """Return the name that a file seems to declare although it cannot be parsed; empty where it has none."""
    match = _CREATE.search(source.text)
    return f"{match[1]}.{match[2]}".lower() if match else ""
