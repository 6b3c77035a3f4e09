"""Unit tests of `roles.cluster`."""
