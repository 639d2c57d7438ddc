"""A project of today: what arrives by the hour and by the day, and what is made of it."""
