"""What a host shows of its GPUs, and what is made of it, as JSON into the folder `report`: one file for each host."""

import json
from dataclasses import asdict
from pathlib import Path

from pyinfra import host

from roles.gpus import catalog
from roles.gpus.facts import DriversFact, LspciFact, PciFact
from roles.gpus.host import see

pci, lspci, drivers = host.get_fact(PciFact), host.get_fact(LspciFact), host.get_fact(DriversFact)
report = {
    "pci": [asdict(device) for device in pci],
    "lspci": [asdict(device) for device in lspci],
    "drivers": asdict(drivers),
    "gpus": [asdict(gpu) for gpu in see(pci, lspci, drivers, catalog.load())],
}
(Path(host.data.report) / f"{host.name}.json").write_text(json.dumps(report))
