"""Unit tests of `roles.base`."""
