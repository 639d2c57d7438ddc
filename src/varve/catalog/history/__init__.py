"""Every batch there was, what was current when, pins, and what a sweep may take."""
