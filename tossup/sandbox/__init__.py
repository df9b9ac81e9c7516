"""Run untrusted code. Knows nothing of problems or models."""
