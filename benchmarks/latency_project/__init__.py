"""A small project for `benchmarks.latency`: files of an hour, and a view of the warehouse that is made from them."""
