"""Validation logs, their statistics, and evaluation of endpoints on the plain benchmark."""
