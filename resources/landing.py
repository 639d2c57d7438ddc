"""The landing folder, into which partners put files, and the tables of others that datasets are copied from.

Where the folder lies is the setting `VARVE_LANDING_ROOT`; how files are named and written, each dataset says
(docs/reference.md).
"""

from varve.dagster.runs.landing import LandingResource

landing = LandingResource()
