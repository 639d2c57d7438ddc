"""What a run holds and does: builds, inputs and outputs, leases, programs, and its failures in words."""
