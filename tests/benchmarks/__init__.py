"""Tests of what compares benchmarks; the benchmarks themselves are run by hand."""
