"""tau2-bench with its official tool: airline, retail and telecom."""
