"""The commands over what is to be computed: why, plan, backfill, retire."""
