"""Suites beside our own benchmark: official tools in environments of their own, with one record of results."""
