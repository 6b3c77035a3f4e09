"""What can be put on a host, one folder each."""
