"""Where batches lie: staged, verified, published, read and swept. store.py is the protocol; lake and warehouse obey."""
