#!/usr/bin/env bash
# Installs what the check uses and Debian does not have, under target/. Each part is made anew when its list changes. `tests/run.sh`
# starts this beside its first compilations, and leaves out what is not there afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
tools=$target/tools
mkdir -p "$tools"
# One that an earlier check has left goes first.
exec 9>"$tools/lock"
flock 9

# Whether the list of a part is not the installed one.
is_old() { ! cmp -s "$1" "$2"; }

pip_into() { "$1/bin/pip" install --quiet --disable-pip-version-check --requirement "$2"; }

# A virtual environment in a folder, with what is on a list.
environment() {
    is_old "$2" "$1/installed.txt" || return 0
    rm -rf "$1"
    python3 -m venv "$1"
    pip_into "$1" "$2"
    cp "$2" "$1/installed.txt"
}

# Not optimised: these run for seconds and compile for minutes.
cargo_tool() {
    [[ $("$tools/bin/$1" --version 2>/dev/null) == "$1 $2" ]] ||
        cargo install "$1" --version "$2" --locked --debug --quiet --root "$tools" --target-dir "$tools/build"
}

cargo_tools() {
    # Licences, duplicates, sources and known weaknesses of dependencies.
    cargo_tool cargo-deny 0.20.2
    # Builds the Debian package for a test. packaging/deb.sh lets other programs compress.
    cargo_tool cargo-deb 3.8.0
    rm -rf "$tools/build"
}

# A system on which nothing but Python is installed: a test follows the tutorials there.
clean_system() {
    local clean=$tools/clean has
    has="$(. /etc/os-release && echo "$VERSION_CODENAME") python3-venv ca-certificates"
    [[ $(id -u) == 0 && $(cat "$clean/installed.txt" 2>/dev/null) != "$has" ]] || return 0
    rm -rf "$clean"
    # The caller asks whether it worked, so an error does not end this function by itself.
    mkdir -p "$clean" &&
    mmdebstrap --quiet --variant=minbase --include="$(cut -d' ' -f2- --output-delimiter=, <<<"$has")" "${has%% *}" "$clean/root" &&
    printf '127.0.0.1 localhost\n::1 localhost\n' >"$clean/root/etc/hosts" &&
    echo "$has" >"$clean/installed.txt"
}

# What checks the Python package, and what its users' systems need. Arguments: the Pythons that it supports, of this machine.
python() {
    local to=$tools/python path versions
    is_old python/tests/requirements.txt "$to/installed.txt" || return 0
    rm -rf "$to"
    python3 -m venv "$to"
    pip_into "$to" python/tests/requirements.txt
    # Scrapy's own tests are in its source only.
    "$to/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary :all: --no-build-isolation \
        --dest "$to/sources" "$(grep '^Scrapy==' python/tests/requirements.txt)"
    # What the package needs, for each version of Python, so that tests can install it without an index.
    "$to/bin/pip" wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir "$to/package" ./python
    for path in "$to/bin/python" "$@"; do
        versions=(--constraint python/tests/requirements.txt)
        # The listed versions of some packages are too new for it. No new versions come for it either.
        [[ $path != "${WEBLOOM_PYTHON_3_10:-}" ]] || versions=()
        "$to/bin/pip" --python "$path" download --quiet --disable-pip-version-check --only-binary :all: "${versions[@]}" \
            --dest "$to/dependencies" --find-links "$to/package" "$(echo "$to"/package/webloom-*.whl)[parsel]"
    done
    rm -f "$to"/dependencies/webloom-*
    cp python/tests/requirements.txt "$to/installed.txt"
}

# axe-core, which finds what keeps people from using a page of the portal. The wheel has the file of the npm package, axe-core 4.12.1.
axe() {
    local version=0.1.8 to=$tools/axe
    [[ ! -e $to/axe_playwright_python-$version.dist-info ]] || return 0
    rm -rf "$to"
    "$tools/python/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$to" "axe-playwright-python==$version"
}

# The compiler of TypeScript, for examples/node.
typescript() {
    local to=$tools/node
    is_old examples/node/package-lock.json "$to/installed.json" && command -v npm >/dev/null || return 0
    rm -rf "$to"
    mkdir -p "$to"
    cp examples/node/{package.json,package-lock.json,.npmrc} "$to"
    npm --prefix "$to" ci --silent --no-audit --no-fund || { echo "npm could not install TypeScript" && return 0; }
    cp examples/node/package-lock.json "$to/installed.json"
}

# The compilations use the processors while the others wait for the network.
cargo_tools &
cargo_process=$!
clean_system || echo "the clean system could not be made"
python "$@"
axe
# The caller that is made of the OpenAPI document, and what makes a site of the pages in docs/.
environment "$target/schemathesis" tests/schemathesis.txt
environment "$tools/docs" docs/requirements.txt
typescript
wait $cargo_process
