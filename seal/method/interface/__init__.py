"""The training-time learning interface Omega (paper, section 3.3): pure."""
