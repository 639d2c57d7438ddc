"""The tables and views of the warehouse: their names, columns, roles, and the notes kept on them."""
