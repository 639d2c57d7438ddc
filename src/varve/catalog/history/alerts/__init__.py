"""Alerts in the catalog: what was opened and closed, what is still to be said to whom, and what they follow from."""
