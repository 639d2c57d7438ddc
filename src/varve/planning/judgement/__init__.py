"""What is to be done with one partition, and why: its facts, its inputs, its windows, and the judgement. Pure."""
