"""Turn-level diagnosis (paper, section 3.2): evidence in, labels out; pure."""
