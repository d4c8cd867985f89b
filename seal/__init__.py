"""SEAL: synergistic co-evolution of agents and learning environments."""
