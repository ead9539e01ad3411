# Everything is set up in this folder (.venv, .tools) without root; a second call finds it there.
#   make demo     a real model under load: which parameter change moved P99?
#   make test     every test
#   make check    lint, types, import layers, generated files
#   make clean    remove what the other targets made
# PYTHON=python3.12 takes another interpreter; DEMO_ARGS and TEST_ARGS are passed on.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.otelkit-ready
DEMO_ARGS ?=
TEST_ARGS ?=

.PHONY: demo test check format clean tools

demo: $(READY) tools
	@scripts/with-tools $(BIN)/otelkit demo $(DEMO_ARGS)

test: $(READY) tools
	@scripts/with-tools $(BIN)/python -m pytest $(TEST_ARGS)

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/otelkit generate all --check

format: $(READY)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# Where Prometheus can't be fetched, the demo scrapes in process and tests say why they are skipped.
tools: $(READY)
	@scripts/fetch-prometheus || echo "going on without Prometheus" >&2
	@scripts/fetch-libgomp $(BIN)/python || echo "going on without the model's engine" >&2

# The virtual environment is complete only when this file is newer than what defines it. pip learnt to read dependency
# groups in 25.1; a Debian's own is older.
$(READY): pyproject.toml scripts/make-venv
	@scripts/make-venv $(VENV)
	@echo "installing otelkit and its tools into $(VENV)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]' --group dev
	@touch $@

clean:
	rm -rf $(VENV) .tools .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist otelkit-demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
