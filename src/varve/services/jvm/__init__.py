"""The virtual machine that Spark runs on: which Java, and what Varve puts on its class path."""
