"""OpenLineage: what runs did, as events that catalogs of others (Marquez, DataHub, Atlan) understand."""
