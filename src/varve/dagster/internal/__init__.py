"""The only package that knows Dagster's private names; tests/dagster/test_internal.py pins the version.

Here, by the names that stand in dagster.yaml: the storage and the launcher.
"""

from varve.dagster.internal.launcher import VarveRunLauncher
from varve.dagster.internal.storage import VarveDagsterStorage

__all__ = ["VarveDagsterStorage", "VarveRunLauncher"]
