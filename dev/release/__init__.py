"""What is checked before a version is published: ``make release-check``, or ``python -m dev.release``."""
