"""Environments in the stores: their builds write batches that readers of production never see, and promotions."""
