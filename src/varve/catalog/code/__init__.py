"""The code of datasets in the catalog: which is deployed, and the plans of its changes."""
