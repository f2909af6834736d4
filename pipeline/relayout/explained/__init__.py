"""The verb `explain`: what another layout or a rebuild of an index would save, without writing it."""
