"""tau2-bench by its official tool: airline, retail and telecom."""
