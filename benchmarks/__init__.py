"""What things cost, beside their peers, in one run on one machine: `python -m benchmarks.<name>`."""
