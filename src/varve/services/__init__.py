"""The servers that the default set-up starts by itself: PostgreSQL, Spark Connect and, where there is none, Java."""
