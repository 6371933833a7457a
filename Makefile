# One command for each job; CI (.ci/run) uses the same ones. `make -k check` goes on after a failure.
PYTHON ?= python

.PHONY: check test dev docs format clean check-format check-lint check-types check-layers check-lines check-docs

check: check-format check-lint check-types check-layers check-lines check-docs

check-format:
	$(PYTHON) -m ruff format --check .

check-lint:
	$(PYTHON) -m ruff check .

check-types:
	$(PYTHON) -m mypy --strict src

check-layers:
	PYTHONPATH=src $(PYTHON) -c 'from importlinter.cli import lint_imports_command as c; c()' --no-cache

check-lines:
	$(PYTHON) tests/repo/line_budget.py

check-docs:
	PYTHONPATH=src $(PYTHON) docs/generate.py --check

test:
	$(PYTHON) -m pytest

# The native kernels in place, src/octavo/_native*.so. Needs cmake, ninja, nanobind and a C++17 compiler.
dev:
	cmake -S . -B build/dev -G Ninja -DOCTAVO_IN_SOURCE=ON \
	    -DPython_EXECUTABLE=$$($(PYTHON) -c 'import sys; print(sys.executable)')
	cmake --build build/dev

# The documents that come from the code.
docs:
	PYTHONPATH=src $(PYTHON) docs/generate.py

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis src/octavo/_native*.so
