# Two commands set up everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORPORA ?= musical-instruments ratebeer
# Modules are compiled when they are first imported: most of those that come with torch never are.
PIP := $(BIN)/pip install --quiet --no-compile --constraint constraints.txt
# What is compiled is kept: where this variable is set, every process of the tests would compile torch anew, in seconds.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test lint coverage install install-locked clean speed speed-growth speed-gpu ranking comparison studies docs torture torture-serve audit test-postgres test-buckets cluster manifests container scale lock
.NOTPARALLEL:  # one pip at a time in one environment

demo: $(VENV)/installed
	$(BIN)/carp demo --out demo

# Two files at a time; what they compute is small, so a thread each. In the folders' order, which ends with the examples of
# src, so that both cores are done together: by numbers of tests, files of few slow ones would come last.
test: install lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

coverage: install  # all tests, also in the processes they start, and the lines that none of them reaches
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

speed: install
	$(BIN)/python benchmarks/speed.py --out results/speed-cpu.json
	$(BIN)/python benchmarks/prepare.py --out results/prepare.jsonl

speed-growth: install  # time and memory against corpus size, pairs a second against batch, and their plots
	$(BIN)/python benchmarks/speed.py --growth --out results/growth-cpu.json
	$(BIN)/python benchmarks/prepare.py --growth --out results/prepare-growth.jsonl
	$(BIN)/python benchmarks/batches.py --out results/batches-cpu.json
	$(BIN)/python benchmarks/speed_plots.py results docs/images

speed-gpu:  # with torch, triton, numpy and safetensors alone, as they are on the machine with the card
	PYTHONPATH=src $(PYTHON) benchmarks/speed_gpu.py --out results/speed-gpu.jsonl

MODEL ?= build/torture-model
REVIEWS ?= $(or $(CARP_DATA),../shared/data)/reviews_Musical_Instruments_5.json.gz
torture-serve: install  # what the service must bear, at its full numbers, about an hour
	test -d $(MODEL) || $(BIN)/carp prepare $(REVIEWS) --out build/torture-corpus --overwrite
	test -d $(MODEL) || $(BIN)/carp train build/torture-corpus --model carp --out $(MODEL) --set epochs=2
	$(BIN)/python benchmarks/torture_serve.py $(MODEL)

cluster: install  # several processes with all models, and a Ray cluster of three nodes on this machine, one of them killed
	$(PIP) --editable '.[ray]'
	CARP_CLUSTER=1 $(BIN)/python -m pytest tests/cluster tests/scale tests/training/test_several_processes.py

container: install  # the commands of deploy/Containerfile one by one in a clean virtual environment, and the service they start
	CARP_CONTAINER=1 $(BIN)/python -m pytest tests/house/test_container_commands.py

scale: install  # preparing from 10,000 to 10 million made-up reviews: about 15 minutes of a core, and 30 GB of disk
	$(BIN)/python benchmarks/scale.py prepare --out results/scale.jsonl

manifests: install  # the files of deploy/ against the schemas of Kubernetes
	$(PIP) --editable '.[deploy]'
	$(BIN)/python -m pytest tests/house/test_deployment.py

ranking: install  # lists of recommendations judged; CORPORA are folders made by carp prepare
	$(PIP) --editable '.[compare]'
	$(BIN)/python benchmarks/ranking.py $(CORPORA) --seeds 0 1 2 3 4 --out results/ranking.jsonl

comparison:  # every system on the same splits; CORPORA as for ranking, on a GPU, by the Python that has torch for it
	PYTHONPATH=src $(PYTHON) benchmarks/comparison.py run $(CORPORA) --processes 16 --out build/comparison
	PYTHONPATH=src $(PYTHON) benchmarks/comparison.py take build/comparison --into results

studies:  # the paper's analyses on CORPORA, restartable; on a GPU, by the Python that has torch for it
	PYTHONPATH=src $(PYTHON) benchmarks/paper_studies.py run $(CORPORA) --kept results --processes 15 --out build/studies
	PYTHONPATH=src $(PYTHON) benchmarks/paper_studies.py take build/studies --into results

docs: install  # the site, in build/site; built and checked in the tests too
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

install: $(VENV)/installed-dev  # everything the tests, the linters, the docs and the benchmarks need

test-postgres: install  # queries to a real PostgreSQL, which is installed from the distribution's packages if it is not there
	CARP_INSTALL_POSTGRES=1 $(BIN)/python -m pytest tests/reviews/test_databases.py

# In an environment of its own, since it brings much along, and a python-dateutil below ours: held to ours, pip tries the s3fs
# of all years, for hours.
test-buckets: install  # buckets of a server that speaks S3, on this machine
	test -x build/s3/bin/moto_server || ($(PYTHON) -m venv build/s3 && grep -v '^python-dateutil' constraints.txt > build/s3/constraints.txt && \
		build/s3/bin/pip install --quiet --constraint build/s3/constraints.txt 'moto[server]' s3fs)
	PYTHONPATH=$$(echo build/s3/lib/python*/site-packages) $(BIN)/python -m pytest tests/cli/test_s3.py

torture: install  # everything that may go wrong, at full numbers; SEED=... replays, PARTS="hostile kills" chooses
	$(PIP) --editable '.[fuzz]'
	$(BIN)/python benchmarks/torture.py --seed $(or $(SEED),0) --out results/torture.jsonl $(if $(PARTS),--parts $(PARTS))

audit:  # known vulnerabilities of everything in the lock, looked up with the package index
	test -x build/audit/bin/pip-audit || ($(PYTHON) -m venv build/audit && build/audit/bin/pip install --quiet pip-audit)
	build/audit/bin/python benchmarks/audit.py

lock: install  # the hashes of everything carp is tested with, and the bill of materials
	$(BIN)/python benchmarks/supply_chain.py --lock requirements.lock --bill results/sbom.cdx.json

install-locked:  # the versions of constraints.txt, and no file whose hash is not in the lock
	$(BIN)/pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --no-deps --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --no-deps --editable .

$(VENV)/installed: pyproject.toml constraints.txt  # what carp itself needs, and no more
	$(BIN)/pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt
	$(BIN)/pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[dev]'
	touch $(VENV)/installed $@

clean:
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
