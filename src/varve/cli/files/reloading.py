"""`varve ui` after a change of a file: the web server loads the definitions anew, as the daemon does every minute.

Not here: what the files hold. A file with an error is shown as broken by the definitions themselves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING

from varve.sql.code.own_files import State, state_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_RELOAD = "mutation { reloadWorkspace { __typename } }"
# Loading the definitions takes seconds; without an answer by then the next look tries again.
_ANSWER_SECONDS = 60.0


@dataclass
class Reloader:
    """Asks a web server to load the definitions anew when a file below one of the folders is another than it was.

    Attributes:
        port: of the web server on 127.0.0.1.
        loaded: the files as the web server has loaded them, as far as is known here.
        seen: the files at the look before.
    """

    folders: Sequence[Path]
    port: int
    loaded: State = field(default_factory=dict)
    seen: State = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.loaded = self.seen = self._state()

    def look(self) -> bool:
        """Reload where files have changed and are the same at two looks; returns whether the server has reloaded.

        While the web server does not answer nothing is raised: the next look tries again.
        """
        before, self.seen = self.seen, self._state()
        if self.seen in (self.loaded, {}) or self.seen != before:
            return False
        connection = HTTPConnection("127.0.0.1", self.port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("POST", "/graphql", json.dumps({"query": _RELOAD}), {"Content-Type": "application/json"})
            answer = json.load(connection.getresponse())
            reloaded = answer["data"]["reloadWorkspace"]["__typename"] == "Workspace"
        except (OSError, HTTPException, ValueError, LookupError, TypeError):
            return False
        finally:
            connection.close()
        # Another type is an error that reloading again would only repeat: the web server shows it.
        self.loaded = self.seen
        return bool(reloaded)

    def _state(self) -> State:
        return {path: state for folder in self.folders for path, state in state_of(folder).items()}
