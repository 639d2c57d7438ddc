"""Partition keys and the dimensions they come from: time, static, dynamic, custom."""
