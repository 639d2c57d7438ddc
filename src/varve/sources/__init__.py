"""What others produce: landing files and tables of other systems."""
