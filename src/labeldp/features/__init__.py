"""Label-free representations of public inputs, and their cache on disk."""

from labeldp.features.cache import cached
from labeldp.features.extractor import Extractor
from labeldp.features.given import given
from labeldp.features.joined import Joined
from labeldp.features.patches import PatchFeatures

__all__ = ["Extractor", "Joined", "PatchFeatures", "cached", "given"]
