# Each target that needs an environment makes its own, again only when what it is made from has changed.
# PYTHON=/some/python, on the command line, makes them with that one.

WORKERS ?= 2
SECONDS ?= 600
export PYTHON
# Tests start some hundred programs, each of which would compile milepost again.
unexport PYTHONDONTWRITEBYTECODE

# Windows has the programs of an environment elsewhere.
BIN = $(if $(filter Windows_NT,$(OS)),Scripts,bin)

# What meets the operating system: what is tested on those that the other tests are not written for.
MEETING_FILES = tests/portability tests/storage tests/series tests/saving tests/restoring tests/distributed tests/engine tests/manager tests/bundle tests/table tests/coding tests/tensor \
	tests/checkpoint tests/testing
# Fast, and each layer has some: what is tested while code is edited.
QUICK = tests/bundle tests/checkpoint tests/coding tests/distributed tests/engine tests/graph tests/manager tests/restoring tests/saving tests/series \
	tests/storage tests/table tests/tensor
# Files that kill processes, cut the power, fork, or build large graphs.
SLOW = after_commit all_or_nothing background collector containers crashes commit_crashes damage deferred_graphs deliver fetch \
	hostile_graphs hostile_states large_states leftovers linear local readers_beside_writers release slices threads unasked wheels

# What TensorFlow 2.15 and Keras 2.15 may do otherwise than TensorFlow 2.21 and tf_keras. What else these folders have either
# uses neither, or is milepost's own part behind the same calls: it runs beside TensorFlow 2.21.
MEETING_TENSORFLOW = tests/adapters/tensorflow tests/adapters/test_private_names.py tests/bundle/test_tensorflow.py \
	$(patsubst %,tests/callbacks/test_%.py,counting exceptions feed plain_arrays resume running) \
	tests/examples/test_guide_numpy.py::test_tensorflow_reads_it tests/examples/test_guide_tensorflow.py \
	$(patsubst %,tests/interop/test_%.py,estimator keras_resume name_based object_graphs saved_models tensorflow_objects) \
	tests/manager/test_with_tensorflow.py tests/table/test_tensorflow.py
MEETING_TORCH = tests/adapters/torch tests/examples/test_guide_torch.py
MEETING_TRAINERS = tests/trainers tests/zoo_trainers
MEETING_JAX = tests/adapters/jax/test_arrays.py tests/adapters/flax/test_variables.py tests/examples/test_guide_jax.py \
	tests/examples/test_guide_flax.py

.PHONY: help demo quick test test-times test-frameworks test-tf215 test-tf215-if-possible test-torch test-jax test-trainers \
	test-core test-core-quickly test-oldest test-files lint lint-systems format docs dist try-dist release-check bench peers trainers fuzz mutants durability versions clean

help:  ## what can be made (this list)
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv-demo/.made  ## train, get killed, resume, compare: needs nothing but the core dependencies
	.venv-demo/$(BIN)/milepost demo

quick: .venv-lint/.made .venv-core/.made  ## style and the fast tests without frameworks, in under a minute: for the loop of edit and test
	.venv-lint/$(BIN)/ruff check
	.venv-lint/$(BIN)/ruff format --check
	MILEPOST_TESTS=quick .venv-core/$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal \
		$(or $(ARGS),$(QUICK) $(SLOW:%=--ignore-glob='*/test_%.py'))

# TensorFlow takes seconds to import, once in each worker: two workers on two cores lose least.
test: test-frameworks test-torch test-jax test-trainers test-tf215-if-possible  ## every test, against real frameworks, together and by themselves

test-frameworks: .venv-test/.made  ## every test: TensorFlow 2.21, Keras 3 on each backend, tf_keras
	.venv-test/$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-times: .venv-test/.made  ## the same, and in the end the seconds of CPU that each file and folder of tests took
	.venv-test/$(BIN)/python -m pytest -q -p tests.times -n $(WORKERS) --dist worksteal $(ARGS)

test-tf215: .venv-tf215/.made  ## the tests that meet TensorFlow, with 2.15 and its Estimators
	.venv-tf215/$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(or $(ARGS),$(MEETING_TENSORFLOW))

# TensorFlow 2.15 has no release for a Python after 3.11, and milepost needs 3.11.
test-tf215-if-possible:
	@if PYTHON= .ci/find-python 3.11 >/dev/null 2>&1; then $(MAKE) test-tf215; else \
		echo "NOT RUN: the tests with TensorFlow 2.15, which needs Python 3.11, and there is none on PATH." \
			"Install it beside the other, for example with pyenv, and run: make test-tf215"; fi

test-torch: .venv-torch/.made  ## that PyTorch needs no other framework
	.venv-torch/$(BIN)/python -m pytest -n $(WORKERS) $(or $(ARGS),$(MEETING_TORCH))

test-jax: .venv-jax/.made  ## that JAX, Flax and Optax need no other framework
	.venv-jax/$(BIN)/python -m pytest -n $(WORKERS) $(or $(ARGS),$(MEETING_JAX))

test-trainers: .venv-trainers/.made  ## Lightning, transformers, Accelerate and ignite, and their page
	.venv-trainers/$(BIN)/python -m pytest -n $(WORKERS) $(or $(ARGS),$(MEETING_TRAINERS))
	$(if $(ARGS),,.venv-trainers/$(BIN)/python -m pytest -q tests/test_project.py -k "(docstrings or documented) and (lightning or transformers or accelerate or ignite)")

test-core: .venv-core/.made  ## the tests that need no TensorFlow
	MILEPOST_TESTS=core .venv-core/$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-core-quickly: .venv-core/.made  ## those of them that depend on the version of Python: without kills, power cuts and large graphs
	MILEPOST_TESTS=core .venv-core/$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal \
		$(SLOW:%=--ignore-glob='*/test_%.py') $(ARGS)

test-oldest: .venv-oldest/.made  ## the same with the oldest NumPy, ml_dtypes, protobuf and google-crc32c that milepost permits, on Python 3.11
	MILEPOST_TESTS=core .venv-oldest/$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(SLOW:%=--ignore-glob='*/test_%.py') $(ARGS)

test-files: .venv-core/.made  ## those of them that meet files, for macOS and Windows
	MILEPOST_TESTS=core .venv-core/$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(or $(ARGS),$(MEETING_FILES))

# The schemas are those that come with check-jsonschema. zizmor finds what makes a workflow unsafe.
SCHEMAS = github-workflows:.github/workflows/*.yml dependabot:.github/dependabot.yml citation-file-format:CITATION.cff \
	"github-issue-forms:.github/ISSUE_TEMPLATE/[!c]*.yml" github-issue-config:.github/ISSUE_TEMPLATE/config.yml

lint: .venv-lint/.made  ## style, format, strict types, import layers, types of programs, workflows
	.venv-lint/$(BIN)/ruff check
	.venv-lint/$(BIN)/ruff format --check
	.venv-lint/$(BIN)/mypy
	.venv-lint/$(BIN)/lint-imports
	for each in $(SCHEMAS); do .venv-lint/$(BIN)/check-jsonschema --builtin-schema "vendor.$${each%%:*}" $${each#*:} || exit; done
	.venv-lint/$(BIN)/zizmor --offline --no-progress --quiet .github
	.venv-lint/$(BIN)/python -m pytest -q tests/test_types.py

lint-systems: .venv-lint/.made  ## types as macOS and Windows see them
	.venv-lint/$(BIN)/mypy --platform darwin src/milepost
	.venv-lint/$(BIN)/mypy --platform win32 src/milepost

format: .venv-lint/.made  ## put the code into the format that lint asks for
	.venv-lint/$(BIN)/ruff check --fix
	.venv-lint/$(BIN)/ruff format

# A warning, such as of a link that leads nowhere, is an error.
docs: .venv-docs/.made  ## HTML of all pages and of the reference, in build/html
	.venv-docs/$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env --conf-dir docs --doctree-dir .cache/docs . build/html

dist: .venv-release/.made  ## the wheel and the source archive of the last commit, built twice, compared and checked, in dist
	.venv-release/$(BIN)/python .ci/release/build.py dist
	.venv-release/$(BIN)/twine check --strict dist/*
	.venv-release/$(BIN)/check-wheel-contents dist/*.whl
	.venv-release/$(BIN)/python -c "import rattler_build; rattler_build.Stage0Recipe.from_file('conda/recipe.yaml').render()"
	MILEPOST_PACKAGES=dist .venv-release/$(BIN)/python -m pytest -q tests/test_project.py -k TestPackages

try-dist: .venv-release/.made  ## install what is in dist with each Python, and the oldest and newest dependencies: make try-dist PYTHONS="3.11 3.14" FRAMEWORKS="jax optax"
	.venv-release/$(BIN)/python .ci/release/install.py dist $(PYTHONS) --with $(FRAMEWORKS)

release-check: lint docs dist try-dist  ## everything of a release that needs no account; needs a clone, and what it checks is the last commit

bench: .venv-bench/.made  ## the benchmarks, about an hour; results go to benchmarks/results and docs/benchmarks.md
	.venv-bench/$(BIN)/python -m benchmarks.engine_overhead
	.venv-bench/$(BIN)/python -m benchmarks.completeness
	.venv-bench/$(BIN)/python -m benchmarks.stages
	.venv-bench/$(BIN)/python -m benchmarks.trees
	.venv-bench/$(BIN)/python -m benchmarks.waits
	.venv-bench/$(BIN)/python -m benchmarks.looking
	.venv-bench/$(BIN)/python -m benchmarks.throughput
	.venv-bench/$(BIN)/python -m benchmarks.several
	.venv-bench/$(BIN)/python -m benchmarks.training_state
	.venv-bench/$(BIN)/python -m benchmarks.incremental
	.venv-bench/$(BIN)/python -m benchmarks.growth
	.venv-bench/$(BIN)/python -m benchmarks.growth --draw
	.venv-bench/$(BIN)/python -m benchmarks.publish

peers: .venv-bench/.made  ## the README's table of what other libraries do; about twenty minutes
	.venv-bench/$(BIN)/python -m benchmarks.peers

trainers: .venv-trainers/.made  ## the table of runs of trainers that are killed and resumed; an hour
	mkdir -p build
	.venv-trainers/$(BIN)/python -m tests.zoo_trainers.table > build/trainers_coverage.md
	mv build/trainers_coverage.md docs/trainers_coverage.md

fuzz: .venv-fuzz/.made  ## look for hostile files that readers do not refuse, guided by coverage: make fuzz SECONDS=3600 ARGS=--keep
	.venv-fuzz/$(BIN)/python -m tests.fuzzing --seconds $(SECONDS) $(ARGS)

mutants: .venv-mutants/.made  ## look for rules that no test holds, in hours: make mutants ARGS="--count 60 series/pins"
	.venv-mutants/$(BIN)/python -m tests.mutation --workers $(WORKERS) $(ARGS)

durability: .venv-fuzz/.made  ## count what is tried to break saves, restores and readers; results go to benchmarks/results
	.venv-fuzz/$(BIN)/python -m benchmarks.durability --seconds $(SECONDS)

# Each environment in .cache/versions is kept. ARGS="jax-oldest jax-newest" tries some of them.
versions: .venv-lint/.made  ## train, kill and resume with the oldest and the newest of each library, in hours; results go to docs/versions.md
	.venv-lint/$(BIN)/python -m benchmarks.versions $(ARGS)

clean:  ## remove environments, caches and builds
	rm -rf .venv-* .cache .*_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv-demo/.made: EXTRAS =
.venv-test/.made: EXTRAS = test,fast,test-stores
.venv-tf215/.made: EXTRAS = test-tf215,fast
.venv-torch/.made: EXTRAS = test-torch
.venv-jax/.made: EXTRAS = test-jax
.venv-trainers/.made: EXTRAS = test-trainers
# Without awscrt, so that the checksums of a plain installation are tested too.
.venv-core/.made: EXTRAS = test-core
.venv-oldest/.made: EXTRAS = test-core
.venv-oldest/.made: export OLDEST = yes
.venv-lint/.made: EXTRAS = test-core,dev
.venv-docs/.made: EXTRAS = docs
.venv-release/.made: EXTRAS = release
.venv-bench/.made: EXTRAS = bench,fast
.venv-fuzz/.made: EXTRAS = fuzz
.venv-mutants/.made: EXTRAS = mutants

.venv-%/.made: VERSIONS = 3.14 3.13 3.12 3.11 3.16 3.15
# TensorFlow has no release for 3.14 yet.
.venv-test/.made: VERSIONS = 3.13 3.12 3.11 3.14 3.16 3.15
.venv-bench/.made: VERSIONS = 3.11 3.12 3.13
# Later versions of Python have no NumPy 1.26.0, or no ml_dtypes 0.3.1.
.venv-oldest/.made: VERSIONS = 3.11
.venv-oldest/.made: override PYTHON =
# TensorFlow 2.15 has none later, and milepost none earlier.
.venv-tf215/.made: VERSIONS = 3.11
.venv-tf215/.made: override PYTHON =

.venv-%/.made: pyproject.toml .ci/environment
	@.ci/environment $(@D) "$(EXTRAS)" $(VERSIONS)
	@touch $@
