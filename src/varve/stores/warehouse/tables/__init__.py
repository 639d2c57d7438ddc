"""The tables and views of the warehouse: their names, columns and roles, and the notes about them."""
