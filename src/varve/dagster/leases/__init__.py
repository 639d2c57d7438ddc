"""The leases of Dagster's runs: who holds one, who renews it, and which runs count as dead."""
