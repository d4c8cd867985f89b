"""The viewer: a local, read-only web application over the logs of runs; docs/viewer.md describes its pages."""
