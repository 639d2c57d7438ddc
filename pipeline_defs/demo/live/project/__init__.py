"""The datasets of `varve demo --live`: what shops send for the hour of now. No part of the project's own assets."""
