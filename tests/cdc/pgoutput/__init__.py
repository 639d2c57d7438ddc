"""The oracle of the capture: `pgoutput` read one message at a time, in plain Python, as it is documented."""
