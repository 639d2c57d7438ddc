"""What tests of several rooms share: this repository's own project, keys, datasets."""
