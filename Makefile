# What a person or continuous integration can ask for; `make help` lists it.

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/ready
RUN := $(VENV)/bin
# Settings of the sandbox: make sandbox SANDBOX='--data sandbox_subnet=198.18.80.0/24'
SANDBOX ?=
# Where the sandbox lives: make sandbox SANDBOX_STATE=/srv/sandbox
SANDBOX_STATE ?= $(or $(GPUQUILT_SANDBOX_STATE),/var/lib/gpuquilt-sandbox)
# The deploys that make and remove it are told, and inventories/sandbox.py reads the variable: all must mean the same one.
export GPUQUILT_SANDBOX_STATE := $(SANDBOX_STATE)
SANDBOX_DATA = --data sandbox_state=$(SANDBOX_STATE) $(SANDBOX)
ifneq (,$(findstring sandbox_state,$(SANDBOX)))
$(error the folder of the sandbox is named by SANDBOX_STATE=/a/folder, and not within SANDBOX)
endif
# The sandbox of inventories/mixed.py, beside that one.
MIXED_DATA = --data sandbox_prefix=gqm --data sandbox_subnet=198.18.86.0/24 --data sandbox_state=/var/lib/gpuquilt-sandbox-mixed \
	--data 'sandbox_machines=[{"name": "cpu", "suite": "bookworm", "octet": 11}, {"name": "vulkan", "octet": 12}, \
	{"name": "docker", "octet": 13}, {"name": "head", "octet": 10}]' $(SANDBOX)
LINTED := roles tests deploys inventories config.py

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
export PYTHONUNBUFFERED := 1
# Debian keeps nft where only root looks for it.
export PATH := $(PATH):/usr/sbin:/sbin

INSTALL := DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --quiet --no-install-recommends
# Command=package of Debian: what the tests run on this computer.
TOOLS := git=git curl=curl zstd=zstd nft=nftables ip=iproute2 ssh-keygen=openssh-client systemd-analyze=systemd pgrep=procps

# What tests/vm runs beside those.
VM_TOOLS := qemu-system-x86_64=qemu-system-x86 mmdebstrap=mmdebstrap mkfs.ext4=e2fsprogs setpriv=util-linux losetup=mount

.PHONY: help setup sandbox sandbox-down sandbox-mixed sandbox-mixed-down test test-unit test-long test-cuda lint docs clean root tools vm-tools

help:
	@echo "make setup               the virtual environment $(VENV) with all packages"
	@echo "make sandbox             three machines on this computer, made into one endpoint, and a question to it (root)"
	@echo "make sandbox-down        remove them again (root)"
	@echo "make sandbox-mixed       four more, of different kinds: processors, Vulkan, a container, a head (root)"
	@echo "make sandbox-mixed-down  remove those again (root)"
	@echo "make test                everything that is tested in an hour; both sandboxes stay up (root)"
	@echo "make test-unit           what needs no machine, in a minute or two"
	@echo "make test-long           what takes longer than its share of an hour (root)"
	@echo "make test-cuda           images for NVIDIA's GPUs, really built where there is none: an hour and 20 GB of disk (root)"
	@echo "make lint                style and types"
	@echo "make docs                write the generated parts of README.md anew"
	@echo "make clean               remove the virtual environment and what tools have left here"

setup: $(READY)

# The stamp is written last, so that an installation that broke off is done again.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than 3.11: name a newer one, make PYTHON=/path/to/python3 setup." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(MAKE) --no-print-directory python3-venv
	@echo "==> Virtual environment $(VENV): packages are installed, which takes about a minute"
	@$(PYTHON) -m venv --clear $(VENV)
	@# The pip of Debian 12 knows no dependency groups.
	@$(RUN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@# What setuptools warns of, a folder that hides our package, is of its own making: it says so of every editable installation.
	@PYTHONWARNINGS=ignore $(RUN)/python -m pip install --quiet --editable . --group dev
	@touch $@

# Debian keeps a part of Python's own library in a package of its own.
.PHONY: python3-venv
python3-venv:
	@if [ "$$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then \
		echo "$(PYTHON) cannot make virtual environments: install the package python3-venv." >&2; exit 1; fi
	@echo "==> Package python3-venv"
	@apt-get update --quiet --quiet
	@$(INSTALL) python3-venv

vm-tools: TOOLS += $(VM_TOOLS)
tools vm-tools:
	@missing=; for tool in $(TOOLS); do \
		command -v "$${tool%=*}" >/dev/null || missing="$$missing $${tool#*=}"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then \
		echo "the tests need programs that this computer lacks: install the packages$$missing." >&2; exit 1; fi; \
	echo "==> Packages that the tests need:$$missing"; \
	apt-get update --quiet --quiet && $(INSTALL) $$missing

root:
	@[ "$$(id -u)" -eq 0 ] || { echo "root is needed: machines, a bridge and firewall rules are made here;" \
		"run it with sudo, or as root." >&2; exit 1; }

sandbox: root $(READY)
	@echo "==> 1 of 3: three machines on this computer"
	@$(RUN)/pyinfra -y @local deploys/sandbox.py $(SANDBOX_DATA)
	@echo "==> 2 of 3: one endpoint out of them (the first time llama.cpp is compiled: about 8 minutes on 2 cores)"
	@$(RUN)/pyinfra -y inventories/sandbox.py deploys/cluster.py
	@echo "==> 3 of 3: a question to the model"
	@$(RUN)/python -m roles.sandbox.ask inventories/sandbox.py

sandbox-down: root $(READY)
	@$(RUN)/pyinfra -y @local deploys/sandbox_down.py $(SANDBOX_DATA)

sandbox-mixed: root $(READY)
	@echo "==> 1 of 5: four machines on this computer"
	@$(RUN)/pyinfra -y @local deploys/sandbox.py $(MIXED_DATA)
	@echo "==> 2 of 5: what they need, Docker for one"
	@$(RUN)/pyinfra -y inventories/mixed.py deploys/prepare.py
	@echo "==> 3 of 5: the image that its container is built from"
	@$(RUN)/pyinfra -y inventories/mixed.py deploys/sandbox_image.py
	@echo "==> 4 of 5: one endpoint out of them (the first time llama.cpp is compiled: about 10 minutes on 2 cores)"
	@$(RUN)/pyinfra -y inventories/mixed.py deploys/cluster.py
	@echo "==> 5 of 5: a question to the model"
	@$(RUN)/python -m roles.sandbox.ask inventories/mixed.py sandbox-mixed

sandbox-mixed-down: root $(READY)
	@$(RUN)/pyinfra -y @local deploys/sandbox_down.py $(MIXED_DATA)

test: root lint test-unit vm-tools
	@echo "==> Tests on a real kernel"
	@$(RUN)/pytest tests/vm
	@echo "==> Tests on real machines"
	@$(RUN)/pytest tests/sandbox -m "not long"

test-unit: $(READY) tools
	@echo "==> Tests without a machine"
	@$(RUN)/pytest -n 2 tests/unit

test-long: root $(READY) tools
	@$(RUN)/pytest tests/unit tests/sandbox -m long

test-cuda: TOOLS += mmdebstrap=mmdebstrap
test-cuda: root $(READY) tools
	@$(RUN)/pytest tests/cuda

lint: $(READY)
	@echo "==> Style and types"
	@$(RUN)/ruff check $(LINTED)
	@$(RUN)/ruff format --check $(LINTED)
	@$(RUN)/mypy

docs: $(READY)
	@$(RUN)/python -m roles.base.documentation --write

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
