"""The model: on the head, verified by its SHA-256 before anything reads it.

On the host: the files of the model in /srv/models/HASH/, or where they lie · /var/lib/gpuquilt/models/ (what was verified).
Never deleted: files in place, and files of a model that the inventory does not name any more.
"""

from pyinfra import host
from pyinfra.api import deploy

from roles.base.download import problems
from roles.base.facts import DownloadsFact
from roles.base.machine import USER
from roles.base.operations import verified_downloads
from roles.base.settings import HostSettings
from roles.cluster.plan import HostPlan
from roles.model.files import files
from roles.model.settings import Settings

__all__ = ["Settings", "check", "files", "prepare"]


def check(plan: HostPlan, settings: HostSettings) -> list[str]:
    """Why this host cannot have its model, one sentence each, as far as that can be known before anything is changed.

    One command on the host at hand; where curl is not installed yet, only what needs none is known.
    """
    if not plan.head:
        return []
    downloads = files(settings[Settings])
    found = host.get_fact(DownloadsFact, downloads=downloads, reader=USER)
    return problems(downloads, found)


@deploy("Model")
def prepare(settings: Settings) -> None:
    """Leave the verified model on the head; touches no service."""
    verified_downloads(name="Files", work="model", downloads=files(settings), reader=USER)
