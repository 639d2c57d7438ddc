"""Things with I/O, as Dagster resources and IO managers: settings, services, catalog, landing and the two stores."""
