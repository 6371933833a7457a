# One command for each job; CI (.ci/run) uses the same ones.
PYTHON ?= python

.PHONY: check test dev docs format clean

check:  ## format, lint, types, layers, line budget, generated documents
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy --strict src
	PYTHONPATH=src $(PYTHON) -c 'from importlinter.cli import lint_imports_command as c; c()'
	$(PYTHON) tests/repo/line_budget.py
	PYTHONPATH=src $(PYTHON) docs/generate.py --check

test:  ## every test
	$(PYTHON) -m pytest

dev:  ## build the native kernels in place: src/octavo/_native*.so
	cmake -S . -B build/dev -G Ninja -DOCTAVO_IN_SOURCE=ON -DPython_EXECUTABLE=$$($(PYTHON) -c 'import sys; print(sys.executable)')
	cmake --build build/dev

docs:  ## write the generated documents again
	PYTHONPATH=src $(PYTHON) docs/generate.py

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis src/octavo/_native*.so
