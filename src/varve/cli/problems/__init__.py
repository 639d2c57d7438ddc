"""What commands say of files that cannot be used, and of what arrived and is not taken."""
