"""Several `dagster ...` commands, one after the other in one process: starting Python costs as much as a run.

    python -m tests.e2e.kinds.commands '[["asset", "materialize", ...], ...]'

Says at last how each ended, a line of `ended 0` each; ends with 1 where any failed.
"""

from __future__ import annotations

import json
import sys
import warnings

import click


def ended(arguments: list[str]) -> int:
    """The exit code of one command."""
    from dagster._cli import create_dagster_cli

    try:
        create_dagster_cli().main(arguments, prog_name="dagster", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Exception:  # noqa: BLE001 - a command may end in any way; the next one runs all the same
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    commands = json.loads(sys.argv[1])
    codes = [ended(command) for command in commands]
    for code in codes:
        sys.stdout.write(f"ended {code}\n")
    sys.exit(any(codes))
