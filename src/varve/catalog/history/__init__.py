"""All batches, which were current when, pins, and what a sweep may delete."""
