"""AgentDojo by the official package: what a model achieves in four suites of tools, without attacks."""
