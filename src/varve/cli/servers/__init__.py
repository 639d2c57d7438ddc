"""`varve up | down | migrate | status | ui | psql`: servers, as a person starts and uses them."""
