"""What holds for every host of every inventory in this folder."""

# Seconds for one step on one host, as the last resort: it must be longer than the longest download, because what it cuts off in
# the middle is not put back. A host that vanishes is noticed within a minute without it (roles/base/connection.py).
_timeout = 6 * 3600
