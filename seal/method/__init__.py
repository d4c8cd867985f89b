"""SEAL's method: labels Psi, profile C_t, cues Omega, utilities rho and weights w, and the teacher; pure."""
