"""`varve.VarveProject`: a project as a component of a `dg` project, for `defs.yaml` and `dg scaffold defs`.

    type: varve.VarveProject
    attributes:
      project: .

Not here: what the project's definitions are (definitions.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from varve.dagster.definitions import definitions
from varve.project import NoProject, Project

if TYPE_CHECKING:
    from pathlib import Path

_PACKAGE = '"""The datasets of this project: .sql files, and Python modules that use `varve.asset`."""\n'


class VarveProjectScaffolder(dg.Scaffolder[Any]):
    """Writes `defs.yaml`; and where no project is found in the folders above, begins one in the `dg` project's."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write the files that `dg scaffold defs varve.VarveProject NAME` asks for; none that is there already."""
        try:
            Project.find(request.target_path)
        except NoProject as error:
            if not error.is_absent:
                raise
            _begin(request.project_root or request.target_path)
        dg.scaffold_component(request, {"project": "."})


def _begin(root: Path) -> None:
    """Declare a project with an empty folder of datasets; folders that are there already are left alone."""
    folder = "varve_assets" if (root / "assets").exists() else "assets"
    (root / folder).mkdir()
    (root / folder / "__init__.py").write_text(_PACKAGE, encoding="utf-8")
    (root / "varve.toml").write_text(f'# The folder of the datasets of Varve.\nassets = "{folder}"\n', encoding="utf-8")


@dg.scaffold_with(VarveProjectScaffolder)
class VarveProject(dg.Component, dg.Model, dg.Resolvable):
    """The datasets of a Varve project, with their sensors, checks, jobs and resources.

    Everything else that the `dg` project defines stands beside them.
    """

    project: str = Field(
        ".", description="the project's folder, or one within it; relative to the folder of this component"
    )
    deployment: str | None = Field(
        None, description="one of the project's deployments; by default the one that its file or VARVE_DEPLOYMENT names"
    )
    sensors_on: bool = Field(
        default=False, description="whether the sensors run from the start, not only when switched on"
    )
    in_process: bool = Field(
        default=True, description="false where the dg project has an executor of its own; Dagster takes one of them"
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of the project. Raises NoProject where there is none."""
        project = Project.find(context.path / self.project, deployment=self.deployment)
        return definitions(project, sensors_on=self.sensors_on, in_process=self.in_process)
