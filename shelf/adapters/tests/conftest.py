from tests.support.installed import environment, package_index

__all__ = ["environment", "package_index"]
