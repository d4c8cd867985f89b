"""What is kept of trajectories, validations and steps: one typed record each."""
