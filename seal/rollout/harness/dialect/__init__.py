"""The wire forms in which harnesses ask the policy, each a translation of one inner form."""
