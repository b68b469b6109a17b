"""Property tests run alike everywhere: no deadline on a busy machine, the same examples each time."""

from hypothesis import settings

settings.register_profile("weft", deadline=None, derandomize=True, database=None)
settings.load_profile("weft")
