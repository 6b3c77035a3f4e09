"""The model alone, out of the inventory of a whole cluster: what deploys/cluster.py does for it, and no more."""

from pyinfra import host

from roles import base, model
from roles.cluster.look import look
from roles.settings import MODELS

seen = look(
    MODELS,
    checks=[model.check],
)
base.prepare()
if seen.plan.hosts[host.name].head:
    model.prepare(seen.settings[host.name][model.Settings])
