"""A small policy made on the spot, so that the whole loop runs without pretrained weights."""
