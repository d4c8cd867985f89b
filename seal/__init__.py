"""SEAL: synergistic co-evolution of agents and learning environments."""

__version__ = "0.3.0"
