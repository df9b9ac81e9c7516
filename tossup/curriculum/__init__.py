"""Pools, success rates, which problem next, which groups train, the ledger and the audit."""
