"""The demos: real flights through the whole pipeline, changes captured, orders as they arrive."""
