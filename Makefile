# Everything a fresh Debian with python3, make and root needs is installed by the first target that needs it.
# A second run is quick: each step leaves a stamp.

SYSTEM_PYTHON ?= /usr/bin/python3
VENV := .venv
PY := $(VENV)/bin/python
TORCH := torch==2.14.1

# Packages of Debian that the tests and the demo use; the product itself needs none of them.
APT := python3-venv gcc libc6-dev binutils util-linux openssl
APT_LAB := qemu-system-x86 busybox-static kmod cpio zstd xz-utils \
	e2fsprogs podman podman-compose aardvark-dns crun runc containerd conmon netavark catatonit uidmap containernetworking-plugins debootstrap iptables \
	prometheus earlyoom systemd systemd-oomd chromium fonts-dejavu-core

.PHONY: help demo test test-gpu lint types unit lab bench bench-guard bench-health bench-preflight soak wheel clean apt apt-lab

help: ## say what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# $(call apt_install,packages): install what is missing, say so when not root.
define apt_install
	@missing=""; for p in $(1); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" != 0 ]; then echo "missing Debian packages:$$missing (run as root to have them installed)" >&2; exit 2; fi; \
	  echo "installing:$$missing"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing >build/apt.log 2>&1 || { tail -20 build/apt.log; exit 1; }; \
	fi
endef

build:
	@mkdir -p build

apt: | build
	$(call apt_install,$(APT))

apt-lab: | build
	$(call apt_install,$(APT) $(APT_LAB))

# torch without its CUDA libraries (several GB); stubs stand in for them, see tests/stubs/.
$(VENV)/ready: pyproject.toml .ci/constraints.txt tests/requirements.txt tests/stubs/build.py | apt
	@$(PY) -m pip --version >/dev/null 2>&1 || $(SYSTEM_PYTHON) -m venv $(VENV)  # without pip: an interrupted first run
	@echo "installing Python packages into $(VENV)"
	@$(PY) -m pip install -q --no-deps $(TORCH) -c .ci/constraints.txt filelock typing-extensions sympy mpmath networkx jinja2 markupsafe fsspec
	@$(PY) -m pip install -q -c .ci/constraints.txt safetensors -e '.[sidecar,docker,dev]'
	@$(PY) -m pip install -q --no-deps -c .ci/constraints.txt -r tests/requirements.txt
	@$(PY) tests/stubs/build.py
	@touch $@

demo: $(VENV)/ready ## the main job, on a real torch server under a real memory limit
	@$(PY) -m bench.demo

test: lint types unit lab ## everything: lint, types, unit, real kernel, virtual machine, containers

lint: $(VENV)/ready ## style, layers
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/lint-imports

types: $(VENV)/ready ## strict mypy
	@$(VENV)/bin/mypy

unit: $(VENV)/ready ## tests that need no special rights
	@$(PY) -m pytest -q -m "not lab"

lab: $(VENV)/ready apt-lab ## tests on the real kernel, in a cgroup v2 machine and in containers (needs root)
	@$(PY) -m pytest -q -m lab

# A real GPU needs NVIDIA's own libraries (several GB), so this one has an environment of its own.
GPU_VENV := .venv-gpu

test-gpu: | build ## the CUDA tests on a real GPU; skips loudly without one
	@if [ -e /dev/nvidiactl ]; then $(MAKE) --no-print-directory test-gpu-real; \
	else echo "SKIPPED make test-gpu: this machine has no NVIDIA GPU (no /dev/nvidiactl); nothing was validated on one"; fi

.PHONY: test-gpu-real
test-gpu-real: $(GPU_VENV)/ready
	@OOMGUARD_TEST_GPU=1 $(GPU_VENV)/bin/python -m pytest -q -m gpu tests/guard/cuda

$(GPU_VENV)/ready: .ci/constraints.txt
	@$(GPU_VENV)/bin/python -m pip --version >/dev/null 2>&1 || $(SYSTEM_PYTHON) -m venv $(GPU_VENV)
	@echo "installing torch with its CUDA libraries into $(GPU_VENV): several GB"
	@$(GPU_VENV)/bin/python -m pip install -q -c .ci/constraints.txt $(TORCH) safetensors numpy hypothesis pytest pytest-asyncio pytest-timeout
	@touch $@

bench: $(VENV)/ready ## measure; writes build/bench/*.json
	@$(PY) -m bench.explain
	@$(PY) -m bench.sidecar

bench-preflight: $(VENV)/ready ## peaks and kills of every load path; writes build/bench/preflight.json (needs root, 10 minutes)
	@$(PY) -m bench.preflight

bench-guard: $(VENV)/ready ## what the guard costs, beside other tools; writes build/bench/guard.json
	@test -d build/bench/peers/memray || $(PY) -m pip install -q --no-deps --target build/bench/peers memray==1.20.0 \
	  || echo "bench-guard: memray cannot be installed here: its figures are left out"
	@$(PY) -m bench.guard

bench-health: $(VENV)/ready ## three judges on well and hung servers; writes build/bench/health.json and .svg (needs root)
	@$(PY) -m bench.health

soak: $(VENV)/ready ## 30 minutes of random scenarios on the same two sidecars; writes build/bench/soak.json (needs root)
	@$(PY) -m bench.health.soak

wheel: $(VENV)/ready ## build the wheel into dist/
	@$(PY) -m build --wheel

clean: ## remove what was built here
	@rm -rf build dist $(VENV)
