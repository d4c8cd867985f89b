"""Training: SEAL's hooks into verl's trainer. Imports nothing, since Ray unpickles this package first."""
